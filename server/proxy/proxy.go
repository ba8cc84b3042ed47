package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/internal/pings"
	"github.com/keepwatch/keepwatch/server/proxy/internal/access"
	"github.com/keepwatch/keepwatch/server/proxy/internal/fairness"
	"github.com/keepwatch/keepwatch/server/proxy/internal/forward"
	"github.com/keepwatch/keepwatch/server/proxy/internal/personal"
	"github.com/keepwatch/keepwatch/server/proxy/internal/socket"
	"github.com/keepwatch/keepwatch/server/proxy/internal/tables"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
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
	// Impersonate lets clients with a certificate of the cluster's authority act as the user of the certificate, and those
	// behind a front proxy of the cluster as the user that it names. Server's identity then needs
	// [ImpersonationRules]. Without it such clients are refused, unless they also have a token. Server must not itself
	// impersonate.
	Impersonate bool
	// Cached selects the resources that may be cached. Requests for other resources are forwarded.
	Cached Selection
	// DropManagedFields selects clients by the texts with which their user agents begin; the empty text selects all. They
	// receive objects without metadata.managedFields from memory. Forwarded answers have managedFields. A write without
	// managedFields leaves those of the server as they are.
	DropManagedFields []string
	// SmallCollection is the number of objects below which the server answers consistent reads: asking it for its
	// newest revision costs as much. Zero means 500; a negative number means none.
	SmallCollection int
	// MemoryLimit is the memory in bytes that the process shall use at most, as Go's soft limit is. When it has
	// no room left, whole resources are left to the server, the largest idle one first. Zero means no limit.
	MemoryLimit int64
	// State is the index on disk, which the caller closes after Run. It may be nil: then watches that resume after a
	// restart of the proxy are forwarded.
	State *State
	// MaxRequestsInFlight is the number of seats that the server's priority levels share while memory answers requests, as
	// kube-apiserver's. Zero means [DefaultMaxRequestsInFlight]; a negative number means no bound.
	MaxRequestsInFlight int

	requestTimeout, settled time.Duration // zero but in tests
	// EncodingsBudget bounds the bytes of cached encodings. Zero means 1 GiB.
	EncodingsBudget int64
	// History bounds the history of each resource. The zero value has defaults.
	History store.Options
	// Personal answers lists and watches over all namespaces that the server refuses. There are no such answers if it is
	// nil.
	Personal *Personal
	// Audit is the log of what the proxy answers itself. It may be nil.
	Audit *Audit
	// Registry receives the metrics. It may be nil.
	Registry metrics.KubeRegistry
}

// DefaultMaxRequestsInFlight is what kube-apiserver's priority levels share by default.
const DefaultMaxRequestsInFlight = fairness.DefaultSeats

const (
	defaultEncodingsBudget = 1 << 30
	defaultSmallCollection = 500
)

// Proxy answers reads of an API server from watch caches, and forwards all other requests. It is an
// http.Handler, whose server must support HTTP/2 or HTTP/1.1 with upgrades. It answers from caches while Run
// runs, and forwards everything at other times. It is safe for concurrent use.
type Proxy struct {
	forwarder   *forward.Forwarder
	access      *access.Control
	gate        *fairness.Gate // before reads
	handler     http.Handler   // all of it
	reads       http.Handler
	infos       *request.RequestInfoFactory
	caches      *caches
	cached      Selection
	forwardings forwardings
	savings     *savings
	recent      recent
	tables      *tables.Proofs
	endpoints   *endpoints
	clients     clients
	personal    *personalReads // nil without Config.Personal
	registry    metrics.KubeRegistry
	audit       *Audit
	small       int // see Config.SmallCollection

	requestTimeout time.Duration
}

// New returns a proxy. It sends no request; Run does. It returns an error for an invalid configuration.
func New(config Config) (*Proxy, error) {
	server := rest.CopyConfig(pings.Config(config.Server))
	server.QPS = -1 // one watch a resource, and reviews that are remembered
	if config.EncodingsBudget == 0 {
		config.EncodingsBudget = defaultEncodingsBudget
	}
	if config.SmallCollection == 0 {
		config.SmallCollection = defaultSmallCollection
	}
	if config.MaxRequestsInFlight == 0 {
		config.MaxRequestsInFlight = DefaultMaxRequestsInFlight
	}
	if config.Registry == nil {
		config.Registry = metrics.NewKubeRegistry()
	}
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		infos: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
			GrouplessAPIPrefixes: sets.NewString("api")},
		cached: config.Cached, small: config.SmallCollection, forwardings: newForwardings(config.Registry),
		savings: newSavings(config.Registry),
		clients: clients{all: map[string]*clientUse{}}, registry: config.Registry, audit: config.Audit,
		requestTimeout: cmp.Or(config.requestTimeout, defaultRequestTimeout),
	}
	accepted := access.Options{OwnToken: config.OwnToken, Certificates: config.Impersonate,
		Personal: config.Personal != nil}
	if p.access, err = access.New(server, client, accepted); err != nil {
		return nil, err
	}
	config.Registry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "keepwatch_proxy_reviews_in_flight", StabilityLevel: metrics.ALPHA,
		Help: "Reviews of tokens and requests that the API server has not answered yet.",
	}, func() float64 { return float64(p.access.Probe.ReviewsInFlight()) }))
	config.Registry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "keepwatch_proxy_credentials_refused", StabilityLevel: metrics.ALPHA,
		Help: "1 while the API server does not know the proxy's own credentials: all requests are forwarded.",
	}, func() float64 {
		if p.access.Probe.RefusedSince().IsZero() {
			return 0
		}
		return 1
	}))
	if p.forwarder, err = forward.New(server, p.access, accepted, config.Registry); err != nil {
		return nil, err
	}
	p.personal = newPersonalReads(config.Personal, p.access, config.Registry,
		cmp.Or(config.settled, personal.Settled))
	budget := readpath.NewBudget(config.EncodingsBudget)
	budget.Register(config.Registry)
	budget.DelegateBusy()
	p.caches, err = newCaches(server, cachesOptions{
		memoryLimit: config.MemoryLimit, cached: config.Cached, slimming: config.DropManagedFields,
		index: config.State.index(), history: config.History, budget: budget,
		metrics: watchcache.NewMetrics(config.Registry), probe: p.access.Probe,
	})
	if err != nil {
		return nil, err
	}
	registerResources(config.Registry, p.caches)
	p.gate = fairness.New(client, config.MaxRequestsInFlight, p.requestTimeout, cost)
	if p.tables, err = tables.New(server, p.caches.describer, p.infos, budget, p.caches.tables,
		config.Registry); err != nil {
		return nil, err
	}
	handler := readpath.NewHandler(http.HandlerFunc(p.delegated), p.lookup, budget, 0)
	handler.Filter(func(next http.Handler) http.Handler { return countsAnswers(p.audit.reads(next)) })
	p.reads = readpath.WithWriteDeadline(genericapifilters.WithWarningRecorder(handler))
	p.endpoints = p.newEndpoints()
	p.handler = genericapifilters.WithAuditInit(http.HandlerFunc(p.serve)) // as an API server, with or without a log
	return p, nil
}

// ClientAuthorities returns the authorities whose certificates clients present, for the TLS configuration of the
// server around the proxy: as the API server, it must request a certificate and need not verify it. ClientAuthorities
// returns nil without [Config].Impersonate.
func (p *Proxy) ClientAuthorities() dynamiccertificates.CAContentProvider {
	return p.access.ClientAuthorities()
}

// Run follows the resources that clients read, and the roles, until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { p.caches.run(ctx) })
	running.Go(func() { p.access.Run(ctx) })
	running.Go(func() { p.caches.limitMemory(ctx) })
	running.Go(func() { p.forwarder.Run(ctx, p.caches.continues) })
	running.Go(func() { p.tables.Run(ctx) })
	running.Go(func() { p.gate.Run(ctx) })
	running.Go(func() { p.recent.run(ctx, p.totals) })
	running.Go(func() { p.personal.run(ctx, p.caches.followed) })
	running.Wait()
}

// ServeHTTP answers a read from a cache if the server allows it to the caller, answers the proxy's own endpoints, and
// forwards any other request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, q *http.Request) { p.handler.ServeHTTP(w, q) }

// serve is ServeHTTP for a request whose context has its Audit-ID, as the answer has.
func (p *Proxy) serve(w http.ResponseWriter, asked *http.Request) {
	if open(asked.URL.Path) {
		p.endpoints.ServeHTTP(w, asked)
		return
	}
	q, err := p.access.Identify(asked)
	if err != nil {
		forward.Refuse(w, asked, err)
		return
	}
	if p.endpoints.has(q.URL.Path) {
		p.endpoints.ServeHTTP(w, q)
		return
	}
	p.serveAPI(w, q)
}

// defaultRequestTimeout bounds a read from memory, as kube-apiserver's --request-timeout does by default: a client that
// has stopped reading must not hold the state that it lists, and its share of the memory for responses, for ever.
const defaultRequestTimeout = time.Minute

// serveAPI answers or forwards a request for the server's API, and counts it for its client.
func (p *Proxy) serveAPI(w http.ResponseWriter, q *http.Request) {
	caller, info, why, err := p.identifyRead(q)
	authenticated := caller != nil || access.CertifiedUser(q.Context()) != nil || p.access.IsOwn(q)
	p.clients.of(q, authenticated).serve(func(w http.ResponseWriter, q *http.Request) {
		if why != "" {
			p.forward(w, p.undecided(q, info, nil, err), info, why)
			return
		}
		p.serveRead(w, q, info, caller)
	}, w, q, p.savings.begin(q, info))
}

// identifyRead returns who sent a read that a cache could answer, or why the request is forwarded. The error is why the
// caller is not known.
func (p *Proxy) identifyRead(q *http.Request) (*access.Caller, *request.RequestInfo, reason, error) {
	info, err := p.infos.NewRequestInfo(q)
	if err != nil {
		return nil, nil, reasonRequest, nil
	}
	if why := p.cacheable(q, info); why != "" {
		return nil, info, why, nil
	}
	caller, err := p.access.Caller(q)
	if err != nil {
		return nil, info, reasonIdentity, err
	}
	return caller, info, "", nil
}

// serveRead answers a read from a cache, or forwards it.
func (p *Proxy) serveRead(w http.ResponseWriter, q *http.Request, info *request.RequestInfo, caller *access.Caller) {
	ctx := request.WithRequestInfo(request.WithUser(q.Context(), caller), info)
	attributes, err := genericapifilters.GetAuthorizerAttributes(ctx)
	if err != nil {
		p.forward(w, q, info, reasonUndecided)
		return
	}
	decision, err := p.access.Decide(ctx, caller, attributes)
	if errors.Is(err, access.ErrBusy) {
		forward.Refuse(w, q, apierrors.NewTooManyRequests(err.Error(), 1))
		return
	}
	if err != nil {
		p.forward(w, p.undecided(q, info, caller, err), info, reasonUndecided)
		return
	}
	if !decision.Allowed {
		if !p.servePersonal(ctx, w, q, info, caller) {
			p.forward(w, q, info, reasonRefused) // the server words the refusal
		}
		return
	}
	// of when the server did not allow everything
	if token := q.URL.Query().Get("continue"); token != "" && readpath.IsBound(token) {
		forward.Refuse(w, q, readpath.Unbound(token))
		return
	}
	if err := checkShard(q, info); err != nil {
		forward.Refuse(w, q, err)
		return
	}
	f, why := p.caches.await(q, info)
	if f == nil {
		p.forwardUncached(w, q, info, why)
		return
	}
	left := sync.OnceFunc(f.read(info.Verb == "watch"))
	defer left()
	reader, table, why := p.readerOf(ctx, q, info, f)
	if reader == nil {
		left() // a forwarded watch does not use the cache
		p.forward(w, q, info, why)
		return
	}
	var end func()
	if info.Verb == "watch" { // the guard follows the decision
		ctx, end = p.access.Guard(ctx, decision)
	} else {
		ctx, end = context.WithTimeout(ctx, p.requestTimeout)
	}
	defer end()
	p.answer(ctx, w, q, info, answer{follower: f, reader: reader, table: table, left: left,
		still: func(ctx context.Context) bool {
			now, err := p.access.Decide(ctx, caller, attributes)
			return err == nil && now.Allowed
		}})
}

// readerOf returns what answers a read from a follower's cache, and the proof that it needs if the answer is a Table.
// It returns a reason instead if the server answers the read faster, or alone.
func (p *Proxy) readerOf(ctx context.Context, q *http.Request, info *request.RequestInfo,
	f *follower) (*readpath.Reader, *tables.Proven, reason) {
	var table *tables.Proven
	asTable := isTable(q, info, f.format.Dynamic)
	if asTable {
		if !isConsistentRead(q, info) {
			p.tables.Await(ctx, f.tables)
		}
		table = p.tables.Of(f.tables) // also if the server answers this one: a watch may follow
	}
	switch cache := f.reader.Cache(); {
	case isSharded(q, info): // the server need not know shards
	case isConsistentRead(q, info) && cache.Snapshot().Len() < p.small:
		return nil, nil, reasonSmall
	case resumesBefore(q, info, cache):
		return nil, nil, reasonRevision
	case asTable && table == nil:
		return nil, nil, reasonTable
	}
	if table != nil {
		return table.Reader, table, ""
	}
	return f.reader, nil, ""
}

// answer is how memory answers a request.
type answer struct {
	follower *follower
	reader   *readpath.Reader
	table    *tables.Proven    // nil if the answer is no Table
	shown    *personal.Reading // nil unless the answer is a part of the resource
	note     string            // a warning for the client; it may be empty
	left     func()            // the cache is no longer used
	cost     apistorage.Stats
	advice   []advice
	// still reports whether the server allows the request as before. It is nil if something else follows that.
	still func(context.Context) bool
}

// isStill is still, and gives the seats of the request back if the server takes long to say it.
func (a answer) isStill(ctx context.Context) bool {
	defer fairness.LeaveIfLong(ctx)()
	return a.still(ctx)
}

// decidedBefore is how long a list may wait between the decision about it and its answer.
const decidedBefore = 100 * time.Millisecond

type answerKey struct{}

// answer answers a request from memory. ctx ends when the answer must.
func (p *Proxy) answer(ctx context.Context, w http.ResponseWriter, q *http.Request, info *request.RequestInfo,
	a answer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.table != nil && info.Verb == "watch" {
		a.table.Watched(ctx, cancel)
	}
	if info.Verb != "get" {
		a.cost = a.costOf(q, info)
	}
	a.advice = p.advice(q, info, a.follower)
	w.Header().Set("Cache-Control", "no-cache, private") // as an API server
	asked := time.Now()
	p.gate.Serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		// one that has waited for its seats is judged after that, as at the server
		if a.still != nil && time.Since(asked) > decidedBefore && !a.isStill(q.Context()) {
			p.leave(w, q, reasonRefused)
			return
		}
		if socket.Asked(q, info) {
			fairness.Leave(q.Context())
			socket.Serve(p.reads, fairness.Below(w), q)
			return
		}
		p.reads.ServeHTTP(w, q)
	}), w, q.WithContext(context.WithValue(ctx, answerKey{}, a)))
}

// forwardUncached forwards a read of a resource whose cache has not caught up.
func (p *Proxy) forwardUncached(w http.ResponseWriter, q *http.Request, info *request.RequestInfo, why reason) {
	if p.isWatchOfShard(q, info) && p.caches.follows(info) { // soon it has: the server need not be asked
		forward.Refuse(w, q, errShard)
		return
	}
	p.forward(w, q, info, why)
}

// cacheable returns why a request is not a read that a cache could answer, or nothing.
func (p *Proxy) cacheable(q *http.Request, info *request.RequestInfo) reason {
	switch {
	case q.Method != http.MethodGet || !info.IsResourceRequest || info.Subresource != "",
		info.Verb != "get" && info.Verb != "list" && info.Verb != "watch":
		return reasonRequest
	case !access.NamesItself(q):
		return reasonCredentials
	case !p.cached.Allows(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}):
		return reasonSelection
	case hasTimeout(q):
		return reasonTimeout
	}
	return ""
}

// lookup returns the reader of an answer. While the server does not answer, it adds a warning that says how old the
// state is.
func (p *Proxy) lookup(q *http.Request, _ *request.RequestInfo) *readpath.Reader {
	a, ok := q.Context().Value(answerKey{}).(answer)
	if !ok {
		return nil
	}
	if a.note != "" {
		warning.AddWarning(q.Context(), "", a.note)
	}
	since := a.follower.source.FailingSince()
	if since.IsZero() {
		since = p.access.Probe.SilentSince()
	}
	if !since.IsZero() {
		warning.AddWarning(q.Context(), "keepwatch",
			fmt.Sprintf("the API server has not answered for %d s: this is its last known state",
				int(time.Since(since).Seconds())))
	}
	return a.reader
}
