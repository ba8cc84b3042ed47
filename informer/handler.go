package informer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// exact bounds the number of changes that a handler receives event by event. A handler that
// is further behind receives the difference: one update for each object that changed.
const exact = 1024

// handler delivers the store's changes to one set of callbacks. It keeps only the last
// state that it delivered: nothing is queued, however slow it is.
type handler struct {
	follower *follower
	react    reaction
	period   time.Duration // between resyncs, as requested; 0 for none
	retries  *retries      // nil: failed calls are not retried
	synced   chan struct{} // closed once the initial list was delivered
	done     chan struct{} // closed once no callback runs or begins any more
	progress progress      // what was delivered

	stopping chan struct{}
	stopOnce sync.Once
	cancel   context.CancelFunc // of the callbacks' context, if they have one

	// follower.mu guards these until the handler runs; then they belong to its goroutine.
	launched    bool
	resyncEvery time.Duration   // period, rounded up to a possible one
	first       *store.Snapshot // the initial state, nil before the first list
}

// reaction calls a set of callbacks with a notification.
type reaction interface {
	// callback returns the call. It decodes compact objects before it returns, so that the
	// call begins with the callback.
	callback(notification) (call func() error)
}

// errRemoved is returned for a handler that was removed before its callback began.
var errRemoved = errors.New("the handler was removed")

// notification is a change of one object as a handler receives it: added (old is nil),
// updated, or deleted (new is nil).
type notification struct {
	at keepwatch.Revision
	// old is the state that the handler received last.
	old, new *item.Item
	// last is the last known state of a deleted object. It is the final one if final is set;
	// a list that lacks an object does not say what its final state was.
	last    *item.Item
	final   bool
	initial bool // part of the handler's initial state
	resync  bool // the object did not change
}

// failurePolicy says whether a failed call is retried.
type failurePolicy bool

const (
	dropFailed  failurePolicy = false
	retryFailed failurePolicy = true
)

func (f *follower) handler(react reaction, period time.Duration, failed failurePolicy) *handler {
	h := &handler{
		follower: f, react: react, period: period,
		synced: make(chan struct{}), done: make(chan struct{}), stopping: make(chan struct{}),
	}
	if failed == retryFailed {
		h.retries = newRetries()
	}
	return h
}

// stop ends the handler once its callback has returned. It does not wait.
func (h *handler) stop() {
	h.stopOnce.Do(func() {
		close(h.stopping)
		if h.cancel != nil {
			h.cancel()
		}
	})
}

func (h *handler) stopped() bool {
	select {
	case <-h.stopping:
		return true
	default:
		return false
	}
}

// ended reports whether no callback runs or begins any more.
func (h *handler) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

func (h *handler) run(until context.Context) {
	defer h.progress.start(nil, 0) // a handle may outlive the handler, and states are large
	defer close(h.done)
	defer context.AfterFunc(until, h.stop)()
	select {
	case <-h.follower.synced:
	case <-h.stopping:
	}
	if h.stopped() {
		return // there may be no initial state
	}
	seen := h.initial()
	if h.stopped() {
		return
	}
	close(h.synced)
	h.follow(seen)
}

// follow delivers the changes after a state, until the handler is removed.
func (h *handler) follow(seen *store.Snapshot) {
	var due <-chan time.Time
	if h.resyncEvery > 0 {
		ticker := time.NewTicker(h.resyncEvery)
		defer ticker.Stop()
		due = ticker.C
	}
	for !h.stopped() {
		var newer <-chan struct{}
		if !h.retries.full() {
			var changes []keepwatch.Change
			changes, seen, newer = h.follower.store.Since(seen, exact)
			if len(changes) > 0 {
				h.follower.applier.waitPublished()
				h.progress.start(seen, len(changes))
				h.deliverAll(changes)
				continue
			}
			h.progress.start(seen, 0)
		}
		wait, stop := h.retries.due()
		select {
		case <-newer:
		case <-due:
			h.resync(seen)
		case <-wait:
			h.runDue()
		case <-h.stopping:
		}
		stop()
	}
}

// initial delivers the initial state.
func (h *handler) initial() *store.Snapshot {
	begin := h.first
	h.first = nil
	h.progress.start(begin, begin.Len())
	for o := range begin.All() {
		if h.stopped() {
			break
		}
		if i := shown(o); i != nil {
			h.deliver(notification{at: i.Revision(), new: i, initial: true})
		}
		h.progress.step()
	}
	return begin
}

// resync delivers the whole state again.
func (h *handler) resync(state *store.Snapshot) {
	for o := range state.All() {
		if h.stopped() {
			return
		}
		if i := shown(o); i != nil {
			h.deliver(notification{at: i.Revision(), old: i, new: i, resync: true})
		}
	}
}

func (h *handler) deliverAll(changes []keepwatch.Change) {
	for _, c := range changes {
		if h.stopped() {
			return
		}
		if o, ok := notificationOf(c); ok {
			h.deliver(o)
		}
		h.progress.step()
	}
}

// notificationOf returns a change without the states that were rejected. It reports false
// if no state is left.
func notificationOf(c keepwatch.Change) (o notification, ok bool) {
	o.at = c.Revision
	if c.Prior != nil {
		o.old = shown(c.Prior)
	}
	if c.Type != keepwatch.Deleted {
		o.new, o.last = shown(c.Object), o.old
		return o, o.old != nil || o.new != nil
	}
	o.last = o.old
	if final := shown(c.Object); final != nil && final.Revision() == c.Revision {
		o.last, o.final = final, true
	}
	return o, o.old != nil
}

// shown returns an object's state, nil if it was rejected.
func shown(o keepwatch.Object) *item.Item {
	if i := o.(*item.Item); i.Err() == nil {
		return i
	}
	return nil
}

// call calls the callback unless the handler was removed. It checks that right before the
// call, since decoding takes time.
func (h *handler) call(o notification) (err error) {
	defer h.follower.panics.guard(h.react, &err)
	callback := h.react.callback(o)
	if h.stopped() {
		return errRemoved
	}
	defer h.follower.latency.since(time.Now())
	return callback()
}
