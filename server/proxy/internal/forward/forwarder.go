package forward

import (
	"context"
	"net/http"
	"net/url"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
)

// Forwarder sends requests to the server: with their callers' own credentials, with the proxy's if they have the
// proxy's token, and in the name of a user whose certificate the proxy has authenticated. It is safe for concurrent
// use.
type Forwarder struct {
	control      *access.Control
	callers      *sender
	own          *ownSender    // nil without the proxy's own token
	impersonator *impersonator // nil without certificates
	inFlight     *inFlight
	unread       *unreadResponses
	takeovers    *takeovers
}

// New returns a forwarder to the server of a configuration. o are those of the control.
func New(server *rest.Config, c *access.Control, o access.Options,
	registry metrics.KubeRegistry) (_ *Forwarder, err error) {
	f := &Forwarder{control: c, inFlight: newInFlight(registry), unread: newUnreadResponses(registry),
		takeovers: newTakeovers(registry)}
	registerKept(registry)
	if f.callers, err = newSender(rest.AnonymousClientConfig(server)); err != nil {
		return nil, err
	}
	if o.OwnToken != "" {
		if f.own, err = newOwnSender(server); err != nil {
			return nil, err
		}
	}
	if o.Certificates {
		f.impersonator, err = newImpersonator(server, c)
	}
	return f, err
}

// ServeHTTP forwards a request, whose context has its RequestInfo.
func (f *Forwarder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	flow, owner := f.control.Flow(q)
	of := flowOf{share{owner, flow}, isStream(q.Context()) || httpstream.IsUpgradeRequest(q)}
	if !f.inFlight.begin(of) {
		refuseMore(w, q)
		return
	}
	defer func() { f.inFlight.end(of) }()
	if !httpstream.IsUpgradeRequest(q) { // whose connection ends here
		w = f.unread.writer(w, q, func() share { return of.share })
	}
	switch {
	case access.CertifiedUser(q.Context()) != nil:
		f.impersonator.forward(w, q, func(as string) bool {
			own := flowOf{share{owner, access.FlowAs(of.flow, as)}, of.stream}
			if !f.inFlight.move(of, own) {
				return false
			}
			of = own
			return true
		})
	case f.control.IsOwn(q):
		f.own.forward(w, q)
	default:
		f.callers.ServeHTTP(w, q)
	}
}

// Address returns the address of the server.
func (f *Forwarder) Address() *url.URL { return f.callers.location }

// Observe lets a watch that is forwarded end when memory can continue it, if it may. The caller forwards the returned
// request, and calls the function at its end.
func (f *Forwarder) Observe(q *http.Request, info *request.RequestInfo) (_ *http.Request, done func()) {
	return f.takeovers.observe(q, info)
}

// Run ends observed watches that memory continues, until ctx ends.
func (f *Forwarder) Run(ctx context.Context, continues Continues) { f.takeovers.run(ctx, continues) }
