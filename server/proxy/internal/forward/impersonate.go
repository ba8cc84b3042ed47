package forward

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
)

// ownSender forwards requests with the proxy's own token.
type ownSender struct {
	sender       *sender // with the proxy's credentials
	impersonates bool    // the proxy acts as another user
}

func newOwnSender(server *rest.Config) (*ownSender, error) {
	to, err := newSender(server)
	return &ownSender{to, actsAsAnother(server)}, err
}

// actsAsAnother reports whether requests of a configuration have headers that name another user. A client's own header
// would take the place of all of them.
func actsAsAnother(server *rest.Config) bool {
	as := server.Impersonate
	return as.UserName != "" || as.UID != "" || len(as.Groups) > 0 || len(as.Extra) > 0
}

// forward forwards a request with the proxy's credentials. A proxy that itself acts as another user does not let the
// bearer choose a third one: the server would judge that by the rights of the proxy, in place of the user's.
func (o *ownSender) forward(w http.ResponseWriter, q *http.Request) {
	if o.impersonates && access.Impersonates(q) {
		Refuse(w, q, apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, "",
			errors.New("this proxy acts as another user already (--as): requests through it cannot have Impersonate- headers")))
		return
	}
	q = q.Clone(q.Context())
	q.Header.Del("Authorization")
	o.sender.ServeHTTP(w, q)
}

// impersonator forwards requests as the proxy, in the name of users that the proxy has authenticated.
type impersonator struct {
	sender  *sender // with the proxy's credentials
	control *access.Control
	checked http.Handler
}

func newImpersonator(server *rest.Config, c *access.Control) (*impersonator, error) {
	if actsAsAnother(server) {
		return nil, errors.New("a proxy that itself impersonates a user cannot impersonate others")
	}
	to, err := newSender(server)
	if err != nil {
		return nil, err
	}
	i := &impersonator{sender: to, control: c}
	// The server would judge the headers of a client by the rights of the proxy, so they are judged here.
	i.checked = impersonation.WithImpersonation(http.HandlerFunc(i.send), c, scheme.Codecs)
	return i, nil
}

type admitKey struct{}

// forward forwards the request of a user that its certificate has proven. If the request impersonates another user, the
// server decides whether that is allowed to the former. Then admit is called with the name of the latter. It reports
// whether the request is forwarded.
func (i *impersonator) forward(w http.ResponseWriter, q *http.Request, admit func(as string) bool) {
	ctx := context.WithValue(q.Context(), admitKey{}, admit)
	i.checked.ServeHTTP(w, q.Clone(request.WithUser(ctx, access.CertifiedUser(q.Context()))))
}

// send forwards a request in the name of the user of its context. It changes the request.
func (i *impersonator) send(w http.ResponseWriter, q *http.Request) {
	as, _ := request.UserFrom(q.Context())
	if err := access.CheckForwardable(as); err != nil {
		Refuse(w, q, err)
		return
	}
	admit := q.Context().Value(admitKey{}).(func(string) bool)
	if name := as.GetName(); name != access.CertifiedUser(q.Context()).GetName() && !admit(name) {
		refuseMore(w, q)
		return
	}
	i.control.RemoveIdentity(q.Header)
	i.sender.as(transport.ImpersonationConfig{UserName: as.GetName(), UID: as.GetUID(), Groups: as.GetGroups(),
		Extra: as.GetExtra()}).ServeHTTP(w, q)
}
