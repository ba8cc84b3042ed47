package tables

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/readpath"
)

const (
	// versionEvery is how often the server is asked for its version, and sampleEvery how often for some rows of a
	// resource, while Tables of it are answered.
	versionEvery, sampleEvery = 10 * time.Second, time.Minute
	// maxComparing bounds the comparisons at a time: each has a page of two Tables in memory.
	maxComparing = 2
	// proofFor bounds the time that it takes to prove the Tables of a resource.
	proofFor = 2 * time.Minute
	// proofWait bounds the wait of a watch, or of a list of any state, for the proof that its Table needs.
	proofWait = 2 * time.Second
	// The first and the longest wait before Tables are compared again, after a comparison that has failed or found a
	// difference.
	proofRetry, longestProofRetry = time.Second, time.Hour
)

// Proofs decides which Tables memory answers: those of which it is proven that the server prints the same. A proof
// belongs to a [basis], and has compared each row of the resource with the server's, byte for byte. A Table whose basis
// is not proven is forwarded. When the basis changes, open watches of Tables end, as at the server, and the next
// request begins a proof. While Tables are answered, samples are compared. A difference ends the proof.
//
// Proofs is safe for concurrent use.
type Proofs struct {
	server      discovery.Server
	infos       *request.RequestInfoFactory
	definitions *definitions
	budget      *readpath.Budget
	followed    func() []*Objects
	total       *metrics.CounterVec
	// These are the constants, unless they are set before run.
	VersionEvery, SampleEvery, Retry time.Duration

	version   atomic.Pointer[string] // of the server, nil if it is not known
	comparing chan struct{}          // has one for each comparison that runs

	mu      sync.Mutex
	running context.Context // of run; nil before and after
	active  sync.WaitGroup
}

// New returns the proofs of a server, by a configuration and what was made of it. followed returns the resources
// that are followed.
func New(config *rest.Config, server discovery.Server, infos *request.RequestInfoFactory,
	budget *readpath.Budget, followed func() []*Objects, to metrics.KubeRegistry) (*Proofs, error) {
	d, err := newDefinitions(config)
	if err != nil {
		return nil, err
	}
	t := &Proofs{
		server: server, infos: infos, definitions: d, budget: budget, followed: followed,
		VersionEvery: versionEvery, SampleEvery: sampleEvery, Retry: proofRetry, comparing: make(chan struct{}, maxComparing),
		total: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "keepwatch_proxy_table_comparisons_total", StabilityLevel: metrics.ALPHA,
			Help: "Comparisons of Tables with the API server's, by their result: equal, different or failed.",
		}, []string{"group", "version", "resource", "result"}),
	}
	to.MustRegister(t.total)
	return t, nil
}

// basis is what the cells of a resource depend on, beside its objects and the time. A Table is proven for a basis.
type basis struct {
	server     string // the version of the server
	definition string // the UID and the generation of a custom resource's definition
}

// Objects are the objects of a resource that is followed in one representation, and what is known of their Tables.
type Objects struct {
	Reader    *readpath.Reader
	Described readpath.Resource // what Reader reads; that of Tables has columns, too
	Format    *verbatim.Format
	proof     proof
}

// proof is what is known of the Tables of some objects.
type proof struct {
	used atomic.Int64 // when the last Table was requested, in Unix nanoseconds

	mu       sync.Mutex
	proven   *Proven       // nil if nothing is proven
	proving  chan struct{} // is closed at the end of the proof that runs; nil if none does
	tried    basis         // of the last proof that failed
	failures int           // one after another
	next     time.Time     // when the next proof may begin
}

// Proven answers Tables until it is withdrawn.
type Proven struct {
	basis
	Reader    *readpath.Reader
	ctx       context.Context // ends when it is withdrawn, with the cache, and with run
	withdraw  context.CancelFunc
	watchers  atomic.Int64
	comparing atomic.Bool  // a sample
	compared  atomic.Int64 // when a comparison has found no difference, in Unix nanoseconds
}

// Of returns what answers the Tables of some objects, nil if the server must. Then it begins a proof, if one may begin.
func (t *Proofs) Of(o *Objects) *Proven {
	o.proof.used.Store(time.Now().UnixNano())
	p := &o.proof
	p.mu.Lock()
	defer p.mu.Unlock()
	now, known := t.basisOf(o)
	if p.proven != nil && p.proven.basis == now {
		return p.proven
	}
	if p.proven != nil && known {
		p.proven.withdraw()
		p.proven = nil
	}
	if p.proving == nil && p.proven == nil && (time.Now().After(p.next) || known && p.tried != now) {
		t.begin(o)
	}
	return nil
}

// basisOf returns the basis of the objects' Tables now. It is not known while the definition is not followed.
func (t *Proofs) basisOf(o *Objects) (now basis, known bool) {
	version := t.version.Load()
	if version == nil {
		return basis{}, false
	}
	now.server = *version
	if !o.Format.Dynamic {
		return now, true
	}
	d, ok := t.definitions.of(o.Described.Resource.GroupResource())
	if !ok {
		return basis{}, false
	}
	now.definition = d.identity
	return now, true
}

// begin begins a proof. o.proof.mu is locked.
func (t *Proofs) begin(o *Objects) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil {
		return
	}
	running, done := t.running, make(chan struct{})
	o.proof.proving = done
	t.active.Go(func() {
		ctx, cancel := context.WithTimeout(running, proofFor)
		defer cancel()
		stop := o.Reader.Cache().AfterEnd(cancel)
		defer stop()
		proven, tried, err := t.prove(ctx, o)
		t.count(o, err)
		if err == nil {
			proven.ctx, proven.withdraw = o.untilEnd(running)
		}
		p := &o.proof
		p.mu.Lock()
		defer p.mu.Unlock()
		defer close(done)
		p.proving = nil
		if err != nil {
			t.failed(p, tried)
			logUnproven(ctx, o, err)
			return
		}
		p.proven, p.next = proven, time.Time{}
	})
}

// untilEnd returns a context that ends with the objects' cache at the latest, so that nothing is left of some objects
// that another one replaces.
func (o *Objects) untilEnd(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := o.Reader.Cache().AfterEnd(cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// failed records that a proof failed, or was refuted. For one basis each wait is longer than the one before. p.mu is
// locked.
func (t *Proofs) failed(p *proof, tried basis) {
	if p.tried != tried {
		p.failures = 0
	}
	wait := t.Retry << min(p.failures, 20)
	p.tried, p.failures, p.next = tried, p.failures+1, time.Now().Add(min(wait, longestProofRetry))
}

// logUnproven logs why Tables are forwarded: as an error if the server prints other ones.
func logUnproven(ctx context.Context, o *Objects, why error) {
	switch {
	case isDifferent(why):
		klog.ErrorS(why, "The API server prints other Tables than memory: they are forwarded", "resource",
			o.Described.Resource)
	case ctx.Err() == nil:
		klog.V(2).InfoS("Tables are not compared, and are forwarded", "resource", o.Described.Resource, "reason", why)
	}
}

// Watched lets a watch of the Table end when the Table is withdrawn: the columns are other ones then, and the server
// ends its watches, too. ctx is the watch's.
func (p *Proven) Watched(ctx context.Context, end func()) {
	p.watchers.Add(1)
	stop := context.AfterFunc(p.ctx, end)
	context.AfterFunc(ctx, func() {
		stop()
		p.watchers.Add(-1)
	})
}

// Await waits until the Tables of some objects are proven, until a proof has failed, or for proofWait.
func (t *Proofs) Await(ctx context.Context, o *Objects) {
	if t.Of(o) != nil {
		return
	}
	p := &o.proof
	p.mu.Lock()
	proving := p.proving
	p.mu.Unlock()
	if proving == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, proofWait)
	defer cancel()
	select {
	case <-proving:
	case <-ctx.Done():
	}
}

// Run lets Tables be proven until ctx ends, and looks after the proofs that are used.
func (t *Proofs) Run(ctx context.Context) {
	t.mu.Lock()
	t.running = ctx
	t.mu.Unlock()
	t.active.Go(func() { t.definitions.run(ctx, t.recheck) })
	for tick := time.NewTicker(t.VersionEvery); ctx.Err() == nil; {
		select {
		case <-tick.C:
			t.look(ctx)
		case <-ctx.Done():
			tick.Stop()
		}
	}
	t.mu.Lock()
	t.running = nil
	t.mu.Unlock()
	t.active.Wait()
}

// recheck withdraws the proofs whose basis has changed.
func (t *Proofs) recheck() {
	for _, o := range t.followed() {
		p := &o.proof
		p.mu.Lock()
		if now, known := t.basisOf(o); p.proven != nil && known && p.proven.basis != now {
			p.proven.withdraw()
			p.proven = nil
		}
		p.mu.Unlock()
	}
}

// look asks for the server's version while Tables are answered, and compares samples of those that were not compared
// for sampleEvery.
func (t *Proofs) look(ctx context.Context) {
	var used []*Objects
	for _, o := range t.followed() {
		if o.proof.inUse(t.SampleEvery) {
			used = append(used, o)
		}
	}
	if len(used) == 0 {
		return
	}
	if _, err := t.readVersion(ctx); err != nil {
		return // nothing can be compared
	}
	t.recheck()
	for _, o := range used {
		p := &o.proof
		p.mu.Lock()
		proven := p.proven
		p.mu.Unlock()
		if proven != nil && time.Since(time.Unix(0, proven.compared.Load())) >= t.SampleEvery &&
			proven.comparing.CompareAndSwap(false, true) {
			t.active.Go(func() {
				defer proven.comparing.Store(false)
				t.sample(ctx, o, proven)
			})
		}
	}
}

// inUse reports whether a Table is proven, and was requested within a time or is watched.
func (p *proof) inUse(within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proven != nil && (p.proven.watchers.Load() > 0 || time.Since(time.Unix(0, p.used.Load())) < within)
}

// sample compares a part of a proven Table, and withdraws it if the server's differs.
func (t *Proofs) sample(ctx context.Context, o *Objects, proven *Proven) {
	ctx, cancel := context.WithTimeout(ctx, proofFor)
	defer cancel()
	err := t.compare(ctx, o, proven.Reader, sampleOf(o))
	t.count(o, err)
	if !isDifferent(err) {
		if err == nil {
			proven.compared.Store(time.Now().UnixNano())
		}
		return
	}
	p := &o.proof
	p.mu.Lock()
	defer p.mu.Unlock()
	proven.withdraw()
	if p.proven == proven {
		p.proven = nil
		t.failed(p, proven.basis)
	}
	logUnproven(ctx, o, err)
}

// count counts a comparison by its result.
func (t *Proofs) count(o *Objects, err error) {
	result := "equal"
	switch {
	case errors.Is(err, errNoTable): // nothing was compared
		return
	case isDifferent(err):
		result = "different"
	case err != nil:
		result = "failed"
	}
	t.total.WithLabelValues(o.Described.Resource.Group, o.Described.Resource.Version, o.Described.Resource.Resource,
		result).Inc()
}
