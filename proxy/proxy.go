package proxy

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/readpath"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/watchcache"
)

// Config describes a proxy.
type Config struct {
	// Server is the API server behind the proxy, with the proxy's own identity: it lists and watches what is
	// cached, and creates TokenReviews and SubjectAccessReviews. Forwarded requests have the credentials of
	// their callers. Required.
	Server *rest.Config
	// OwnToken is a bearer token whose bearer acts as the proxy: its requests are forwarded with Server's
	// credentials. There is none if it is empty.
	OwnToken string
	// Secrets allows Secrets to be cached. They are forwarded otherwise.
	Secrets bool
	// EncodingsBudget bounds the bytes of cached encodings. Zero means 1 GiB.
	EncodingsBudget int64
	// History bounds the history of each resource. The zero value has defaults.
	History store.Options
	// Registry receives the metrics. It may be nil.
	Registry metrics.KubeRegistry
}

const defaultEncodingsBudget = 1 << 30

// Proxy answers reads of an API server from watch caches, and forwards all other requests. It is an
// http.Handler, whose server must support HTTP/2 or HTTP/1.1 with upgrades. It answers from caches while Run
// runs, and forwards everything at other times. It is safe for concurrent use.
type Proxy struct {
	forwarder    *forwarder   // with the caller's credentials
	own          *ownIdentity // nil without OwnToken
	reads        http.Handler
	infos        *request.RequestInfoFactory
	authenticate authenticator.Request
	permissions  *permissions
	roles        *roles
	caches       *caches
	secrets      bool
}

// New returns a proxy. It sends no request; Run does. It returns an error for an invalid configuration.
func New(config Config) (*Proxy, error) {
	server := rest.CopyConfig(config.Server)
	server.QPS = -1 // one watch a resource, and reviews that are remembered
	if config.EncodingsBudget == 0 {
		config.EncodingsBudget = defaultEncodingsBudget
	}
	if config.Registry == nil {
		config.Registry = metrics.NewKubeRegistry()
	}
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		infos:   &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		secrets: config.Secrets,
	}
	if p.forwarder, err = newForwarder(rest.AnonymousClientConfig(server)); err != nil {
		return nil, err
	}
	if config.OwnToken != "" {
		if p.own, err = newOwnIdentity(config.OwnToken, server, client.AuthenticationV1()); err != nil {
			return nil, err
		}
	}
	if p.authenticate, err = newAuthenticator(client.AuthenticationV1()); err != nil {
		return nil, err
	}
	if p.permissions, err = newPermissions(client.AuthorizationV1()); err != nil {
		return nil, err
	}
	if p.roles, err = newRoles(server, p.permissions); err != nil {
		return nil, err
	}
	budget := readpath.NewBudget(config.EncodingsBudget)
	budget.Register(config.Registry)
	if p.caches, err = newCaches(server, budget, watchcache.NewMetrics(config.Registry), config.History); err != nil {
		return nil, err
	}
	handler := readpath.NewHandler(http.HandlerFunc(p.delegated), p.lookup, budget, 0)
	p.reads = readpath.WithWriteDeadline(genericapifilters.WithWarningRecorder(handler))
	return p, nil
}

// Run follows the resources that clients read, and the roles, until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	defer p.permissions.close()
	var running sync.WaitGroup
	running.Go(func() { p.caches.run(ctx) })
	running.Go(func() { p.roles.run(ctx) })
	running.Wait()
}

// ServeHTTP answers a read from a cache if the server allows it to the caller, and forwards any other request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	info, err := p.infos.NewRequestInfo(q)
	if err != nil || !p.cacheable(q, info) {
		p.forward(w, q)
		return
	}
	of := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	caller, ok := p.caller(q)
	if !ok {
		p.forward(w, q)
		return
	}
	ctx := request.WithRequestInfo(request.WithUser(q.Context(), caller), info)
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		p.forward(w, q)
		return
	}
	allowed, changed, err := p.permissions.allowed(ctx, attributes)
	if err != nil || !allowed {
		p.forward(w, q) // the server words the refusal
		return
	}
	if p.caches.ready(of) == nil {
		p.caches.follow(of)
		p.forward(w, q)
		return
	}
	if info.Verb == "watch" {
		var end func()
		ctx, end = p.permissions.guard(ctx, attributes, changed)
		defer end()
	}
	w.Header().Set("Cache-Control", "no-cache, private") // as an API server
	p.reads.ServeHTTP(w, q.WithContext(ctx))
}

// cacheable reports whether a request is a read that a cache could answer.
func (p *Proxy) cacheable(q *http.Request, info *request.RequestInfo) bool {
	switch {
	case q.Method != http.MethodGet || !info.IsResourceRequest || info.Subresource != "" || !namesItself(q):
		return false
	case info.Verb != "get" && info.Verb != "list" && info.Verb != "watch":
		return false
	}
	return p.secrets || info.APIGroup != "" || info.Resource != "secrets"
}

// forward forwards a request, with the proxy's credentials if it has the proxy's token.
func (p *Proxy) forward(w http.ResponseWriter, q *http.Request) {
	if p.own.sent(q) {
		p.own.forward(w, q)
		return
	}
	p.forwarder.ServeHTTP(w, q)
}

// caller returns who sent a request.
func (p *Proxy) caller(q *http.Request) (user.Info, bool) {
	if p.own.sent(q) {
		return p.own.user(q.Context())
	}
	// Authenticators remove the credentials that they have used, which forwarding needs.
	response, ok, err := p.authenticate.AuthenticateRequest(q.Clone(q.Context()))
	if err != nil || !ok {
		return nil, false
	}
	return response.User, true
}

// lookup returns the reader of a request, unless the server answers it faster. While the server does not answer,
// it adds a warning that says how old the state is.
func (p *Proxy) lookup(q *http.Request, info *request.RequestInfo) *readpath.Reader {
	f := p.caches.ready(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource})
	if f == nil || acceptsOther(q) {
		return nil
	}
	cache := f.reader.Cache()
	if isConsistentRead(q, info) && cache.Snapshot().Len() < smallCollection || resumesBefore(q, info, cache) {
		return nil
	}
	if since := f.source.failingSince(); !since.IsZero() {
		warning.AddWarning(q.Context(), "keepwatch", fmt.Sprintf("the API server has not answered for %d s: this is its last known state", int(time.Since(since).Seconds())))
	}
	return f.reader
}

// delegated forwards a request that was to be answered from a cache.
func (p *Proxy) delegated(w http.ResponseWriter, q *http.Request) {
	w.Header().Del("Cache-Control") // the server sends its own
	p.forward(w, q)
}
