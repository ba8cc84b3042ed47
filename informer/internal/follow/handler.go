package follow

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
// lags by more receives the difference: one update for each object that changed.
const exact = 1024

// HandlerOptions configure a handler.
type HandlerOptions struct {
	// Resync is the period between resyncs, 0 for none. It is rounded up to a possible one.
	Resync time.Duration
	// Retry delivers the changes again whose call failed.
	Retry bool
	// Stop, if set, is called once when no further callback begins.
	Stop func()
}

// Handler delivers the store's changes to one set of callbacks. It stores only the last
// state that it delivered: nothing is queued, however slow it is.
type Handler struct {
	follower  *Follower
	callbacks Callbacks
	options   HandlerOptions
	retries   *retries      // nil: failed calls are not retried
	synced    chan struct{} // closed once the initial list was delivered
	done      chan struct{} // closed once no callback runs or begins any more
	progress  progress      // what was delivered

	stopping chan struct{}
	stopOnce sync.Once

	// follower.mu guards these until the handler runs; then they belong to its goroutine.
	launched    bool
	resyncEvery time.Duration   // options.Resync, rounded up to a possible one
	first       *store.Snapshot // the initial state, nil before the first list
}

// Callbacks are the functions of a handler.
type Callbacks interface {
	// Callback returns the call for a notification. It decodes compact objects before it
	// returns, so that the call begins with the user's function.
	Callback(Notification) (call func() error)
}

// errRemoved is returned for a handler that was removed before its callback began.
var errRemoved = errors.New("the handler was removed")

// Notification is a change of one object as a handler receives it: added (Old is nil),
// updated, or deleted (New is nil).
type Notification struct {
	Revision keepwatch.Revision
	// Old is the state that the handler received last.
	Old, New *item.Item
	// Last is the last known state of a deleted object. It is the final one if Final is set;
	// a list that lacks an object does not contain its final state.
	Last    *item.Item
	Final   bool
	Initial bool // part of the handler's initial state
	Resync  bool // the object did not change
}

// Key returns the object's key.
func (n Notification) Key() keepwatch.Key {
	if n.New != nil {
		return n.New.Key()
	}
	return n.Last.Key()
}

func newHandler(f *Follower, callbacks Callbacks, o HandlerOptions) *Handler {
	h := &Handler{
		follower: f, callbacks: callbacks, options: o,
		synced: make(chan struct{}), done: make(chan struct{}), stopping: make(chan struct{}),
	}
	if o.Retry {
		h.retries = newRetries()
	}
	return h
}

// Synced returns a channel that is closed once the initial state was delivered.
func (h *Handler) Synced() <-chan struct{} { return h.synced }

// Done returns a channel that is closed once no callback runs or begins any more.
func (h *Handler) Done() <-chan struct{} { return h.done }

// Remove removes the handler from its follower; see [Follower.Remove].
func (h *Handler) Remove() { h.follower.Remove(h) }

// stop ends the handler once its callback has returned. It does not wait.
func (h *Handler) stop() {
	h.stopOnce.Do(func() {
		close(h.stopping)
		if h.options.Stop != nil {
			h.options.Stop()
		}
	})
}

func (h *Handler) stopped() bool { return isClosed(h.stopping) }

func (h *Handler) run(until context.Context) {
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
func (h *Handler) follow(seen *store.Snapshot) {
	var due <-chan time.Time
	if h.resyncEvery > 0 {
		ticker := time.NewTicker(h.resyncEvery)
		defer ticker.Stop()
		due = ticker.C
	}
	for !h.stopped() {
		var changes []keepwatch.Change
		var newer <-chan struct{}
		changes, seen, newer = h.follower.store.Since(seen, exact)
		if len(changes) > 0 {
			h.follower.applier.waitPublished()
			h.progress.start(seen, len(changes))
			h.deliverAll(changes)
			h.runDue() // there may always be changes
			select {
			case <-due:
				h.resync(seen)
			default:
			}
			continue
		}
		h.progress.start(seen, 0)
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
func (h *Handler) initial() *store.Snapshot {
	begin := h.first
	h.first = nil
	h.progress.start(begin, begin.Len())
	for o := range begin.All() {
		if h.stopped() {
			break
		}
		if i := Shown(o); i != nil {
			h.deliver(Notification{Revision: i.Revision(), New: i, Initial: true})
		}
		h.progress.step()
	}
	return begin
}

// resync delivers the whole state again.
func (h *Handler) resync(state *store.Snapshot) {
	for o := range state.All() {
		if h.stopped() {
			return
		}
		if i := Shown(o); i != nil {
			h.deliver(Notification{Revision: i.Revision(), Old: i, New: i, Resync: true})
		}
	}
}

func (h *Handler) deliverAll(changes []keepwatch.Change) {
	for _, c := range changes {
		if h.stopped() {
			return
		}
		if n, ok := notificationOf(c); ok {
			h.deliver(n)
		}
		h.progress.step()
	}
}

// notificationOf returns a change without the states that were rejected. It reports false
// if no state is left.
func notificationOf(c keepwatch.Change) (n Notification, ok bool) {
	n.Revision = c.Revision
	if c.Prior != nil {
		n.Old = Shown(c.Prior)
	}
	if c.Type != keepwatch.Deleted {
		n.New, n.Last = Shown(c.Object), n.Old
		return n, n.Old != nil || n.New != nil
	}
	n.Last = n.Old
	if final := Shown(c.Object); final != nil && final.Revision() == c.Revision {
		n.Last, n.Final = final, true
	}
	return n, n.Old != nil
}

// call calls the callback unless the handler was removed. It checks that right before the
// call, since decoding takes time.
func (h *Handler) call(n Notification) (err error) {
	defer h.follower.panics.guard(h.callbacks, &err)
	callback := h.callbacks.Callback(n)
	if h.stopped() {
		return errRemoved
	}
	defer h.follower.latency.observe(time.Now())
	return callback()
}
