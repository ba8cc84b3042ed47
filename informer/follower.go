package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// follower keeps a store equal to a source and runs the handlers of the store. Typed and
// shared informers are built on it. It runs once.
type follower struct {
	name      string
	source    source
	store     *store.Store
	applier   *applier
	reflector *reflector.Reflector
	report    func(reflector.Notice) // is called with failures, if not nil
	synced    chan struct{}          // closed once the first list is in the store

	mu       sync.Mutex
	phase    phase
	handlers map[*handler]struct{}
	running  sync.WaitGroup
	// until is done when the handlers must end; nil before the start.
	until context.Context
	// resync is the period at which resyncs can be due, 0 for never. Handlers lower it until
	// the start.
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
	errStarted = errors.New("informer has already started")
	errStopped = errors.New("because it has stopped already")
)

// store returns the options of an informer's store. The history is for handlers that are a
// little behind; others receive the difference. Compact informers have less history.
func (s settings) store() store.Options {
	o := store.Options{
		WindowBytes:    8 << 20,
		WindowAge:      5 * time.Minute,
		Tombstones:     10_000,
		TombstoneBytes: 4 << 20,
		Size:           func(o keepwatch.Object) int { return o.(*item.Item).Size() },
	}
	if s.compact {
		o.WindowBytes, o.TombstoneBytes = 256<<10, 256<<10
	}
	return o
}

func newFollower(name string, source source, expect expectation, s settings) *follower {
	f := &follower{
		name:     name,
		source:   source,
		store:    store.New(s.store()),
		synced:   make(chan struct{}),
		handlers: map[*handler]struct{}{},
		panics:   panicPolicy{crash: s.crash, count: new(atomic.Uint64)},
	}
	f.applier = &applier{store: f.store, expect: expect, transform: s.transform, dropManaged: s.dropManaged, listed: f.listed}
	f.reflector = reflector.New(source, f.applier, reflector.Options{
		StartupDeadline: s.startupDeadline,
		Seed:            s.seed,
		Paged:           s.paged,
		Observe:         f.observe,
	})
	return f
}

// resourceVersion returns the server's resource version of the cache, "" before the first
// list.
func (f *follower) resourceVersion() string {
	if current := f.store.Snapshot().Revision(); current > 0 {
		return f.source.ResourceVersion(current)
	}
	return ""
}

// resource returns the resource that is read, empty before it is known.
func (f *follower) resource() schema.GroupVersionResource {
	if f.store.Snapshot().Revision() == 0 {
		return schema.GroupVersionResource{}
	}
	return f.source.Resource()
}

// cached returns the cached object of a key, nil if there is none.
func (f *follower) cached(key keepwatch.Key) *item.Item {
	if o, ok := f.store.Snapshot().Get(key); ok {
		return o.(*item.Item)
	}
	return nil
}

// observe reports failures, except the end of a watch that does not cause a new list.
func (f *follower) observe(n reflector.Notice) {
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

// logRelist logs that a failure leads to a new list.
func (f *follower) logRelist(ctx context.Context, why *keepwatch.Failure) {
	klog.FromContext(ctx).Info("The informer lists again", "informer", f.name, "reason", why.Kind, "err", why)
}

// run follows the source until ctx is done or an error that cannot be retried occurs, and
// returns once every handler has ended. It returns ctx's cause or the failure. It calls
// begin first, and ended once it no longer follows the source: with the failure, or nil if
// ctx is done. If it ran before, it fails and calls neither.
func (f *follower) run(ctx context.Context, begin func(), ended func(failure error)) error {
	until, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	if err := f.start(until, begin); err != nil {
		return err
	}
	err := f.reflector.Run(ctx)
	f.mu.Lock()
	f.phase = stopped
	f.mu.Unlock()
	if end(); ctx.Err() != nil {
		ended(nil)
	} else {
		ended(err)
	}
	f.running.Wait()
	return err
}

func (f *follower) start(until context.Context, begin func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != fresh {
		return errStarted
	}
	f.phase, f.until = running, until
	begin()
	for h := range f.handlers {
		f.launch(h)
	}
	return nil
}

// configure applies a change that is not allowed once the follower runs.
func (f *follower) configure(change func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != fresh {
		return errStarted
	}
	change()
	return nil
}

// listed starts the handlers with the first list.
func (f *follower) listed(first *store.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handlers {
		h.first = first
	}
	close(f.synced)
}

func (f *follower) isSynced() bool {
	select {
	case <-f.synced:
		return true
	default:
		return false
	}
}

func (f *follower) in(p phase) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase == p
}

// add adds a handler. It starts now, or with the follower.
func (f *follower) add(h *handler) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase == stopped {
		return fmt.Errorf("handler %v was not added to shared informer %w", h.react, errStopped)
	}
	if f.phase == fresh && h.period > 0 {
		f.resync = min(f.resync, h.period)
	}
	f.handlers[h] = struct{}{}
	if f.phase == running {
		if f.isSynced() {
			h.first = f.applier.current.Load()
		}
		f.launch(h)
	}
	return nil
}

// launch starts a handler. The caller holds f.mu.
func (f *follower) launch(h *handler) {
	h.resyncEvery = multiple(h.period, f.resync)
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

// remove removes a handler: no further callback begins, and h.done is closed once the
// running one, if any, has returned. It reports false for a handler of another follower. It
// does not block.
func (f *follower) remove(h *handler) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.follower != f {
		return false
	}
	if _, there := f.handlers[h]; there {
		delete(f.handlers, h)
		h.stop()
		if !h.launched {
			close(h.done)
		}
	}
	return true
}
