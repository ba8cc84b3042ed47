package proxy

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// impersonator forwards requests as the proxy, in the name of users that the proxy has authenticated.
type impersonator struct {
	forwarder    *forwarder // with the proxy's credentials
	certificates *certificates
	checked      http.Handler
}

func newImpersonator(server *rest.Config, c *certificates, p *permissions) (*impersonator, error) {
	forwarder, err := newForwarder(server)
	if err != nil {
		return nil, err
	}
	i := &impersonator{forwarder: forwarder, certificates: c}
	// The server would judge the headers of a client by the rights of the proxy, so they are judged here.
	i.checked = impersonation.WithImpersonation(http.HandlerFunc(i.send), reviewer{p}, scheme.Codecs)
	return i, nil
}

// forward forwards the request of a user that its certificate has proven. If the request impersonates another user, the
// server decides whether that is allowed to the former.
func (i *impersonator) forward(w http.ResponseWriter, q *http.Request) {
	i.checked.ServeHTTP(w, q.Clone(request.WithUser(q.Context(), certifiedUser(q.Context()))))
}

// send forwards a request in the name of the user of its context. It changes the request.
func (i *impersonator) send(w http.ResponseWriter, q *http.Request) {
	as, _ := request.UserFrom(q.Context())
	if err := checkForwardable(as); err != nil {
		refuse(w, q, err)
		return
	}
	q.Header.Del("Authorization") // it would replace the proxy's
	i.certificates.removeHeaders(q.Header)
	for name := range q.Header {
		if isImpersonation(name) {
			q.Header.Del(name)
		}
	}
	i.forwarder.as(transport.ImpersonationConfig{UserName: as.GetName(), UID: as.GetUID(), Groups: as.GetGroups(),
		Extra: as.GetExtra()}).ServeHTTP(w, q)
}

// isImpersonation reports whether a header names a user to impersonate.
func isImpersonation(header string) bool { return strings.HasPrefix(header, "Impersonate-") }

// checkForwardable returns an error for a user that headers would make another one of: they lose spaces at both ends,
// and empty values.
func checkForwardable(u user.Info) error {
	values := append([]string{u.GetName()}, u.GetGroups()...)
	for _, extra := range u.GetExtra() {
		values = append(values, extra...)
	}
	if u.GetUID() != "" {
		values = append(values, u.GetUID())
	}
	for _, value := range values {
		if value == "" || strings.Trim(value, " \t") != value || !httpguts.ValidHeaderFieldValue(value) {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errUnforwardable{value})
		}
	}
	return nil
}

// errUnforwardable is why a user is refused.
type errUnforwardable struct{ value string }

func (e errUnforwardable) Error() string {
	return "the proxy cannot act as a user whose name, UID, group or extra field is " + strconv.Quote(e.value) +
		": impersonation headers can't carry it. Use a bearer token"
}

// reviewer is permissions as an authorizer.
type reviewer struct{ permissions *permissions }

func (r reviewer) Authorize(ctx context.Context,
	attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	allowed, _, err := r.permissions.allowed(ctx, attributes)
	switch {
	case err != nil:
		return authorizer.DecisionNoOpinion, "the API server does not decide whether this is allowed", err
	case !allowed:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// ImpersonationRules returns what a proxy's identity needs beside [ClusterRole] for [Config].Impersonate. With these
// rules it can act as any user.
func ImpersonationRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{authorities},
			Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"groups", "serviceaccounts", "users"}, Verbs: []string{"impersonate"}},
		{ // uids, and userextras with every subresource, for which rules have no pattern
			APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"impersonate"},
		},
	}
}
