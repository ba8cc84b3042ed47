package follow

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/health"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

var _ health.Member = (*Follower)(nil)

// Follower keeps a store equal to a source and runs the handlers of the store. It runs
// once. Its methods may be called from any goroutine.
type Follower struct {
	name      string
	source    Source
	store     *store.Store
	applier   *applier
	reflector *reflector.Reflector
	report    func(reflector.Notice) // is called with failures, if not nil
	synced    chan struct{}          // closed once the first list is in the store

	mu       sync.Mutex
	phase    phase
	handlers map[*Handler]struct{}
	running  sync.WaitGroup
	// until is done when the handlers must end; nil before the start.
	until context.Context
	// resync is Options.Resync, as lowered by handlers.
	resync time.Duration
	panics panicPolicy
	// latency is of the handlers' calls.
	latency latency
}

// phase is the lifecycle of a follower. The values are closed.
type phase uint8

const (
	fresh phase = iota
	running
	stopped
)

var (
	// ErrStarted is returned where a follower must not have been started.
	ErrStarted = errors.New("informer has already started")
	// ErrStopped is returned where a follower must not have stopped. It completes a sentence
	// of client-go's.
	ErrStopped = errors.New("because it has stopped already")
)

// New returns a follower of a source of objects like the example, nil for any objects. It
// sends no request.
func New(name string, source Source, example runtime.Object, o Options) *Follower {
	f := &Follower{
		name:     name,
		source:   source,
		store:    store.New(o.store()),
		synced:   make(chan struct{}),
		handlers: map[*Handler]struct{}{},
		resync:   o.Resync,
		panics:   panicPolicy{crash: o.CrashOnPanic, count: new(atomic.Uint64)},
	}
	f.applier = &applier{store: f.store, expect: expecting(example), transform: o.Transform, seed: maphash.MakeSeed(),
		dropManaged: o.DropManagedFields, listed: f.listed}
	f.reflector = reflector.New(source, f.applier, reflector.Options{
		StartupDeadline: o.StartupDeadline,
		Seed:            o.Seed,
		Paged:           o.Paged,
		Observe:         f.observe,
	})
	return f
}

// Name returns what the follower reads, for people.
func (f *Follower) Name() string { return f.name }

// Synced returns a channel that is closed once the first list is in the store.
func (f *Follower) Synced() <-chan struct{} { return f.synced }

// IsSynced reports whether the first list is in the store.
func (f *Follower) IsSynced() bool { return isClosed(f.synced) }

// IsStopped reports whether Run has stopped following the source.
func (f *Follower) IsStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase == stopped
}

// ResourceVersion returns the server's resource version of the cache, "" before the first
// list.
func (f *Follower) ResourceVersion() string {
	if current := f.store.Snapshot().Revision(); current > 0 {
		return f.source.ResourceVersion(current)
	}
	return ""
}

// Cached returns the cached object of a key, nil if there is none.
func (f *Follower) Cached(key keepwatch.Key) *item.Item {
	if o, ok := f.store.Snapshot().Get(key); ok {
		return o.(*item.Item)
	}
	return nil
}

// ListAt reads the state of the source at exactly one revision; see [Source].
func (f *Follower) ListAt(ctx context.Context, revision keepwatch.Revision, emit func([]keepwatch.Object) error) error {
	return f.source.ListAt(ctx, revision, emit)
}

// Repair makes the follower list again with the next batch or bookmark of the source. It
// does not block.
func (f *Follower) Repair() { f.applier.repairRequested.Store(true) }

// observe reports failures, except the end of a watch that does not cause a new list.
func (f *Follower) observe(n reflector.Notice) {
	if n.Failure == nil || f.report == nil {
		return
	}
	switch n.Failure.Kind {
	case keepwatch.Ended, keepwatch.StreamingListUnsupported:
		if n.Decision != reflector.Relist {
			return
		}
	}
	f.report(n)
}

// LogRelist logs that a failure causes a new list.
func (f *Follower) LogRelist(ctx context.Context, reason *keepwatch.Failure) {
	klog.FromContext(ctx).Info("The informer lists again", "informer", f.name, "reason", reason.Kind, "err", reason)
}

// Hooks are functions that Run calls. Any may be nil, except Begin and End.
type Hooks struct {
	// Begin is called before the first request. until is done when the handlers must end.
	Begin func(until context.Context)
	// End is called once the source is no longer followed: with the failure, or nil if
	// Run's context is done.
	End func(failure error)
	// Report is called with failures, except the end of a watch that does not cause a list.
	Report func(reflector.Notice)
	// Accepted is called with each value that enters the store, unless it is packed.
	Accepted func(any)
}

// Run follows the source until ctx is done or an error that cannot be retried occurs, and
// returns once every handler has ended. It returns ctx's cause or the failure. If it ran
// before, it returns ErrStarted and calls no hook.
func (f *Follower) Run(ctx context.Context, hooks Hooks) error {
	until, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := f.start(until, hooks); err != nil {
		return err
	}
	err := f.reflector.Run(ctx)
	f.mu.Lock()
	f.phase = stopped
	f.mu.Unlock()
	if end(); ctx.Err() != nil {
		hooks.End(nil)
	} else {
		hooks.End(err)
	}
	f.running.Wait()
	return err
}

func (f *Follower) start(until context.Context, hooks Hooks) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != fresh {
		return ErrStarted
	}
	f.phase, f.until = running, until
	f.report, f.applier.accepted = hooks.Report, hooks.Accepted
	hooks.Begin(until)
	for h := range f.handlers {
		f.launch(h)
	}
	return nil
}

// Configure calls change unless the follower was started; then it returns ErrStarted. Run
// does not begin meanwhile.
func (f *Follower) Configure(change func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != fresh {
		return ErrStarted
	}
	change()
	return nil
}

// SetTransform replaces the transform. It may be called within Configure only.
func (f *Follower) SetTransform(transform func(any) (any, error)) { f.applier.transform = transform }

// listed starts the handlers with the first list.
func (f *Follower) listed(first *store.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handlers {
		h.first = first
	}
	close(f.synced)
}

// Add adds a handler. It starts now, or with the follower. Add fails once the follower has
// stopped.
func (f *Follower) Add(callbacks Callbacks, o HandlerOptions) (*Handler, error) {
	h := newHandler(f, callbacks, o)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase == stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer %w", callbacks, ErrStopped)
	}
	if f.phase == fresh && o.Resync > 0 {
		f.resync = min(f.resync, o.Resync)
	}
	f.handlers[h] = struct{}{}
	if f.phase == running {
		if f.IsSynced() {
			h.first = f.applier.current.Load()
		}
		f.launch(h)
	}
	return h, nil
}

// launch starts a handler. The caller holds f.mu.
func (f *Follower) launch(h *Handler) {
	h.resyncEvery = multiple(h.options.Resync, f.resync)
	h.launched = true
	f.running.Go(func() { h.run(f.until) })
}

// multiple rounds a resync period up to a multiple of the period at which resyncs can be
// due.
func multiple(period, check time.Duration) time.Duration {
	if period <= 0 || check <= 0 {
		return 0
	}
	return (period + check - 1) / check * check
}

// Remove removes a handler: no further callback begins, and Done is closed once the running
// one, if any, has returned. Remove does not block. A handler of another follower, or one
// that was removed, is not an error.
func (f *Follower) Remove(h *Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, added := f.handlers[h]; added {
		delete(f.handlers, h)
		h.stop()
		if !h.launched {
			close(h.done)
		}
	}
}

// Go runs a function in a goroutine that Run waits for. It may be called by the Begin hook
// only.
func (f *Follower) Go(function func()) { f.running.Go(function) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
