package proxy

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apimetrics "k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/proxy/internal/fairness"
	"github.com/keepwatch/keepwatch/server/proxy/internal/forward"
	"github.com/keepwatch/keepwatch/server/proxy/internal/socket"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// reason is why a request is forwarded. The set is closed.
type reason string

const (
	reasonRequest     reason = "request"     // it is no read of a resource: a write, a subresource, discovery, an upgrade
	reasonSelection   reason = "selection"   // the resource may not be cached
	reasonCredentials reason = "credentials" // none, other ones than one bearer token or certificate, or an impersonation
	reasonTimeout     reason = "timeout"     // its timeout is wrong or short: the server judges it
	reasonIdentity    reason = "identity"    // the server does not know the token
	reasonRefused     reason = "refused"     // the server refuses it to the caller
	reasonUndecided   reason = "undecided"   // the server has not decided
	reasonNotReady    reason = "not-ready"   // the cache has not caught up, or there is none
	reasonEncoding    reason = "encoding"    // caches do not have it
	reasonTable       reason = "table"       // a Table of which it is not proven that the server prints the same
	reasonSmall       reason = "small"       // the server answers a consistent read of a small collection as fast
	reasonRevision    reason = "revision"    // the cache does not reach back to it
	reasonReadPath    reason = "read-path"   // the server answers it more exactly: an unusual selector, an error
)

// explained says for people what a reason means, and what a client can do about it.
var explained = map[reason]string{
	reasonRequest:     "no read of objects: a write, a log, discovery",
	reasonSelection:   "--cache or --no-cache leaves the resource out",
	reasonCredentials: "the client sends no token",
	reasonTimeout:     "the timeout is wrong or short",
	reasonIdentity:    "the server does not know the token",
	reasonRefused:     "the server refuses it to the client",
	reasonUndecided:   "the server did not decide whether it is allowed",
	reasonNotReady:    "the first list was not complete, or the resource is left to the server",
	reasonEncoding:    "a Table of a built-in kind (kubectl get without -o), YAML or CBOR; JSON and protobuf are in memory",
	reasonTable:       "a Table that is not compared with the server's yet, or differs from it",
	reasonSmall:       "a consistent read of a small collection; with resourceVersion=0 memory answers",
	reasonRevision:    "a watch from before the first list; --state keeps the index",
	reasonReadPath:    "an unusual selector, or an error that the server words",
}

// forwardings counts forwarded requests.
type forwardings struct{ total *metrics.CounterVec }

func newForwardings(registry watchcache.Registry) forwardings {
	f := forwardings{metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "keepwatch_proxy_forwarded_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests that were forwarded to the API server, by resource and reason. Resources that were never cached have no name here.",
	}, []string{"group", "version", "resource", "reason"})}
	registry.MustRegister(f.total)
	return f
}

// forward forwards a request, with the proxy's credentials if it has the proxy's token, or a certificate that the proxy
// has authenticated. info may be nil.
func (p *Proxy) forward(w http.ResponseWriter, q *http.Request, info *request.RequestInfo, why reason) {
	of, verb := schema.GroupVersionResource{}, q.Method
	if info != nil && info.IsResourceRequest {
		of, verb = schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
			info.Verb
	}
	if !p.caches.knows(of) { // clients must not make up values of labels
		of = schema.GroupVersionResource{}
	}
	if counted := countedOf(q); counted != nil {
		counted.client.forward(why)
		counted.read.forward(why)
	}
	p.forwardings.total.WithLabelValues(of.Group, of.Version, of.Resource, string(why)).Inc()
	switch {
	case p.isWatchOfShard(q, info):
		q = forward.OnlyErrors(q, errShard)
	case why == reasonNotReady || why == reasonRevision:
		var done func()
		q, done = p.forwarder.Observe(q, info)
		defer done()
	}
	scope, subresource := "", ""
	if info != nil {
		q = q.WithContext(request.WithRequestInfo(q.Context(), info)) // the verb of streams is CONNECT
		if of.Resource != "" {
			scope = apimetrics.CleanScope(info)
		}
		if subresources.Has(info.Subresource) {
			subresource = info.Subresource
		}
	}
	apimetrics.InstrumentHandlerFunc(strings.ToUpper(verb), of.Group, of.Version, of.Resource, subresource, scope,
		apimetrics.APIServerComponent, false, "", p.forwarder.ServeHTTP)(w, q)
}

// subresources are the values of the label subresource of kube-apiserver's metrics: Kubernetes' own. Their latencies
// are other ones than those of the resource, without end in the case of streams.
var subresources = sets.New("approval", "attach", "binding", "ephemeralcontainers", "eviction", "exec", "finalize",
	"log", "portforward", "proxy", "resize", "scale", "status", "token")

// delegated forwards a request whose answer the read path leaves to the server.
func (p *Proxy) delegated(w http.ResponseWriter, q *http.Request) { p.leave(w, q, reasonReadPath) }

// leave forwards a request that the gate has admitted.
func (p *Proxy) leave(w http.ResponseWriter, q *http.Request, why reason) {
	if below, asked, ok := socket.Unwrap(w); ok { // with the handshake
		w, q = below, asked.WithContext(q.Context())
	}
	fairness.Leave(q.Context()) // the server has seats of its own
	w = fairness.Below(w)       // an upgrade hijacks the connection
	fairness.Forget(w.Header())
	w.Header().Del("Cache-Control") // the server sends its own
	info, _ := request.RequestInfoFrom(q.Context())
	if a, ok := q.Context().Value(answerKey{}).(answer); ok {
		a.left() // a forwarded watch does not use the cache
	}
	p.forward(w, q, info, why)
}
