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

// follower keeps a store equal to a source, and lets handlers follow the store.
// It is what both kinds of informers are made of. It runs once.
type follower struct {
	name      string
	source    source
	store     *store.Store
	intake    *intake
	reflector *reflector.Reflector
	report    func(reflector.Notice) // is called with failures, if not nil
	synced    chan struct{}          // closed once the first list is in the store

	mu       sync.Mutex
	phase    phase
	handlers map[*handler]struct{}
	running  sync.WaitGroup
	// until is done when the handlers have to end; nil before the start.
	until context.Context
	// resync is how often resyncs can be due, 0 for never. Handlers lower it until
	// the start.
	resync time.Duration
	panics panicPolicy
	// latency is of the handlers' calls.
	latency latency
}

// phase is where the life of a follower is. The values are closed.
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

// store is what an informer's store remembers. History is kept for handlers that are at
// most a little behind; others get the difference. Where memory is dear, that comes sooner.
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
	f.intake = &intake{store: f.store, expect: expect, transform: s.transform, dropManaged: s.dropManaged, listed: f.listed}
	f.reflector = reflector.New(source, f.intake, reflector.Options{
		StartupDeadline: s.startupDeadline,
		Seed:            s.seed,
		Paged:           s.paged,
		Observe:         f.observe,
	})
	return f
}

// resourceVersion is what the cache is equal to on the server, "" before the first
// list.
func (f *follower) resourceVersion() string {
	if held := f.store.Snapshot().Revision(); held > 0 {
		return f.source.ResourceVersion(held)
	}
	return ""
}

// resource is what is read, once it is known.
func (f *follower) resource() schema.GroupVersionResource {
	if f.store.Snapshot().Revision() == 0 {
		return schema.GroupVersionResource{}
	}
	return f.source.Resource()
}

// held is what is held of a key, nil for nothing.
func (f *follower) held(key keepwatch.Key) *item.Item {
	if o, ok := f.store.Snapshot().Get(key); ok {
		return o.(*item.Item)
	}
	return nil
}

// observe reports failures, except those that happen all the time and lead to nothing:
// a watch that ended, unless it is the reason for a new list.
func (f *follower) observe(n reflector.Notice) {
	if n.Failure == nil || f.report == nil {
		return
	}
	switch n.Failure.Kind {
	case keepwatch.Ended, keepwatch.StreamingListUnsupported:
		if n.Verdict != reflector.RelistNow {
			return
		}
	}
	f.report(n)
}

// logRelist logs that a failure leads to a new list.
func (f *follower) logRelist(ctx context.Context, why *keepwatch.Failure) {
	klog.FromContext(ctx).Info("The informer lists again", "informer", f.name, "reason", why.Kind, "err", why)
}

// run follows the source until ctx is done, or until nothing else is true, and
// returns when every handler is out. It returns ctx's cause or the failure. Unless it
// has run before, begin is called first, and ended as soon as nothing is followed any
// more: with why, or nil if that was asked for.
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

// configure changes what must not change once it runs.
func (f *follower) configure(change func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.phase != fresh {
		return errStarted
	}
	change()
	return nil
}

// listed lets the handlers begin with the first list.
func (f *follower) listed(first *store.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handlers {
		h.begin = first
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

// add lets a handler follow from now on, or from the start.
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
			h.begin = f.intake.current.Load()
		}
		f.launch(h)
	}
	return nil
}

// launch starts a handler; f.mu is held.
func (f *follower) launch(h *handler) {
	h.every = multiple(h.period, f.resync)
	h.launched = true
	f.running.Go(func() { h.run(f.until) })
}

// multiple is a resync period as it can be kept: a multiple of how often resyncs
// can be due.
func multiple(period, check time.Duration) time.Duration {
	if period <= 0 || check <= 0 {
		return 0
	}
	return (period + check - 1) / check * check
}

// remove ends a handler: no further call of it begins, and h.done is closed when
// the one that runs, if any, is over. It reports whether the handler is one of
// this follower's. It does not block.
func (f *follower) remove(h *handler) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.follower != f {
		return false
	}
	if _, there := f.handlers[h]; there {
		delete(f.handlers, h)
		h.leave()
		if !h.launched {
			close(h.done)
		}
	}
	return true
}
