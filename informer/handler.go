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

// exact bounds the history that a handler is told event by event. One that is
// further behind is told the difference, one update for each object that changed.
const exact = 1024

// handler follows the store on behalf of one set of callbacks. All it holds is the
// state up to which it was told: however slow it is, nothing is queued for it.
type handler struct {
	follower *follower
	react    reaction
	period   time.Duration // between resyncs, as asked for; 0 for none
	debts    *debts        // nil: what fails is not told again
	synced   chan struct{} // closed once it has worked off the initial list
	done     chan struct{} // closed once it will not be called any more
	place    place         // what it has been told

	leaving   chan struct{}
	leaveOnce sync.Once
	cancel    context.CancelFunc // of what the callbacks get, if they do

	// Of follower.mu until the handler runs, then of its goroutine.
	launched bool
	every    time.Duration   // period, as it can be kept
	begin    *store.Snapshot // what it is told first, nil before there is a list
}

// reaction is how a set of callbacks takes what happened to one object.
type reaction interface {
	// callback returns the call that is to be made. Objects that are kept encoded are
	// decoded before it returns, so that nothing comes before the callback in the call.
	callback(occurrence) (call func() error)
}

// errLeft is why a removed handler was not called.
var errLeft = errors.New("the handler was removed")

// occurrence is what happened to one object: it appeared (no old), changed, or
// is gone (no new).
type occurrence struct {
	at keepwatch.Revision
	// old is what the handler was told last.
	old, new *item.Item
	// last is the state in which an object is gone: the final one or, where that is
	// not known because a list showed the deletion, the last that was seen.
	last    *item.Item
	final   bool
	initial bool // part of the state that the handler began with
	resync  bool // nothing happened
}

// retry says what becomes of a change for which a handler failed.
type retry bool

const (
	giveUp   retry = false
	tryAgain retry = true
)

func (f *follower) handler(react reaction, period time.Duration, failed retry) *handler {
	h := &handler{
		follower: f, react: react, period: period,
		synced: make(chan struct{}), done: make(chan struct{}), leaving: make(chan struct{}),
	}
	if failed == tryAgain {
		h.debts = newDebts()
	}
	return h
}

// leave ends the handler as soon as it is out of its callback.
func (h *handler) leave() {
	h.leaveOnce.Do(func() {
		close(h.leaving)
		if h.cancel != nil {
			h.cancel()
		}
	})
}

func (h *handler) left() bool {
	select {
	case <-h.leaving:
		return true
	default:
		return false
	}
}

// ended reports whether the handler will not be called any more.
func (h *handler) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

func (h *handler) run(until context.Context) {
	defer h.place.head(nil, 0) // a handle may be kept, and states are large
	defer close(h.done)
	defer context.AfterFunc(until, h.leave)()
	select {
	case <-h.follower.synced:
	case <-h.leaving:
	}
	if h.left() {
		return // and there may be nothing to begin with
	}
	seen := h.initial()
	if h.left() {
		return
	}
	close(h.synced)
	h.follow(seen)
}

// follow tells what happens after a state, until the handler leaves.
func (h *handler) follow(seen *store.Snapshot) {
	var due <-chan time.Time
	if h.every > 0 {
		ticker := time.NewTicker(h.every)
		defer ticker.Stop()
		due = ticker.C
	}
	for !h.left() {
		var newer <-chan struct{}
		if !h.debts.full() {
			var changes []keepwatch.Change
			changes, seen, newer = h.follower.store.Since(seen, exact)
			if len(changes) > 0 {
				h.follower.intake.settle()
				h.place.head(seen, len(changes))
				h.tellAll(changes)
				continue
			}
			h.place.head(seen, 0)
		}
		wait, stop := h.debts.due()
		select {
		case <-newer:
		case <-due:
			h.resync(seen)
		case <-wait:
			h.pay()
		case <-h.leaving:
		}
		stop()
	}
}

// initial tells the state that the handler begins with.
func (h *handler) initial() *store.Snapshot {
	begin := h.begin
	h.begin = nil
	h.place.head(begin, begin.Len())
	for o := range begin.All() {
		if h.left() {
			break
		}
		if i := shown(o); i != nil {
			h.deliver(occurrence{at: i.Revision(), new: i, initial: true})
		}
		h.place.step()
	}
	return begin
}

// resync tells the whole state again.
func (h *handler) resync(state *store.Snapshot) {
	for o := range state.All() {
		if h.left() {
			return
		}
		if i := shown(o); i != nil {
			h.deliver(occurrence{at: i.Revision(), old: i, new: i, resync: true})
		}
	}
}

func (h *handler) tellAll(changes []keepwatch.Change) {
	for _, c := range changes {
		if h.left() {
			return
		}
		if o, ok := occurred(c); ok {
			h.deliver(o)
		}
		h.place.step()
	}
}

// occurred is a change as it looks to one who is not shown what was rejected; ok
// is false where nothing is to be seen.
func occurred(c keepwatch.Change) (o occurrence, ok bool) {
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

// shown is an object's state if it may be shown, else nil.
func shown(o keepwatch.Object) *item.Item {
	if i := o.(*item.Item); i.Err() == nil {
		return i
	}
	return nil
}

// call calls back, unless the handler has left: that is asked at the last moment, since
// decoding takes time.
func (h *handler) call(o occurrence) (err error) {
	defer h.follower.panics.guard(h.react, &err)
	callback := h.react.callback(o)
	if h.left() {
		return errLeft
	}
	defer h.follower.latency.since(time.Now())
	return callback()
}
