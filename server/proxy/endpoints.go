package proxy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
	"github.com/keepwatch/keepwatch/server/proxy/internal/forward"
	"github.com/keepwatch/keepwatch/server/servemetrics"
)

// endpoints are the paths that the proxy answers itself: the health of the proxy, which is not that of the server,
// its metrics, its profiles, and the page. All but the health need the permission to get their path.
type endpoints struct {
	mux   *mux.PathRecorderMux
	paths map[string]bool // of the mux
	proxy *Proxy
}

func (p *Proxy) newEndpoints() *endpoints {
	e := &endpoints{mux.NewPathRecorderMux("keepwatch-proxy"), map[string]bool{}, p}
	healthz.InstallLivezHandler(e.mux, healthz.PingHealthz)
	healthz.InstallReadyzHandler(e.mux, healthz.PingHealthz, p.serverCheck())
	servemetrics.Install(e.mux, p.registry)
	routes.Profiling{}.Install(e.mux)
	p.installPage(e.mux)
	for _, path := range e.mux.ListedPaths() {
		e.paths[path] = true
	}
	return e
}

// serverCheck returns a check that fails until the server has answered once. It does not fail while the server is
// down later: reads of any state and watches go on then.
func (p *Proxy) serverCheck() healthz.HealthChecker {
	var once atomic.Bool
	return healthz.NamedCheck("api-server", func(*http.Request) error {
		switch {
		case once.Load():
		case !p.access.Probe.RefusedSince().IsZero():
			return errors.New("the API server does not know the proxy's own credentials")
		case !p.access.Answered():
			return errors.New("the API server has not answered yet")
		default:
			once.Store(true)
		}
		return nil
	})
}

// open reports whether a path needs no permission, as the same paths of an API server.
func open(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first == "livez" || first == "readyz"
}

// has reports whether a path is the proxy's. Other paths below /keepwatch/ are the server's: keepwatch serve has some.
func (e *endpoints) has(path string) bool {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "metrics":
		return true
	case "keepwatch":
		return e.paths[path]
	case "debug":
		return rest == "pprof" || strings.HasPrefix(rest, "pprof/")
	}
	return open(path)
}

// ServeHTTP answers a request for one of the paths, while the server allows it to the caller.
func (e *endpoints) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if open(q.URL.Path) || e.isOwnersPage(q) {
		e.mux.ServeHTTP(w, q)
		return
	}
	ctx, end := e.authorize(w, q)
	if ctx == nil {
		return
	}
	defer end()
	e.proxy.gate.Serve(e.proxy.audit.allowed(e.mux), w, q.WithContext(ctx))
}

// isOwnersPage reports whether a request with the proxy's own token is for the page, which says nothing that the proxy
// does not know. It needs no permission: it shows what is wrong also while the server does not answer.
func (e *endpoints) isOwnersPage(q *http.Request) bool {
	return strings.HasPrefix(q.URL.Path, "/keepwatch") && e.proxy.access.IsOwn(q) && !access.Impersonates(q)
}

// authorize returns a context that ends when the server no longer allows a request to its caller, and a function to
// call at its end. If the server does not allow it, authorize answers as an API server does, and returns nil.
func (e *endpoints) authorize(w http.ResponseWriter, q *http.Request) (ctx context.Context, end func()) {
	info, err := e.proxy.infos.NewRequestInfo(q)
	if err != nil {
		responsewriters.InternalError(w, q, err)
		return nil, nil
	}
	caller, err := e.proxy.access.Caller(q)
	if err != nil || !access.NamesItself(q) {
		forward.Refuse(w, q, apierrors.NewUnauthorized("Unauthorized"))
		return nil, nil
	}
	ctx = request.WithRequestInfo(request.WithUser(q.Context(), caller), info)
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		responsewriters.InternalError(w, q, err)
		return nil, nil
	}
	decision, err := e.proxy.access.Decide(ctx, caller, attributes)
	switch {
	case errors.Is(err, access.ErrBusy):
		forward.Refuse(w, q, apierrors.NewTooManyRequests(err.Error(), 1))
		return nil, nil
	case err != nil:
		forward.Refuse(w, q, apierrors.NewServiceUnavailable("the API server does not decide whether this is allowed"))
		return nil, nil
	case !decision.Allowed:
		e.proxy.audit.records("forbid", http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			responsewriters.Forbidden(attributes, w, q, "", scheme.Codecs)
		})).ServeHTTP(w, q.WithContext(ctx))
		return nil, nil
	}
	return e.proxy.access.Guard(ctx, decision)
}
