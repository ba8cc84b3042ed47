package informer

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
)

// retries holds the objects whose handler call failed. A retry delivers the change from the
// last accepted state to the newest one: later changes of the object are merged into it.
type retries struct{ pending map[keepwatch.Key]*retry }

type retry struct {
	notification
	attempts int
	due      time.Time
}

// maxRetries bounds the pending retries. A handler with so many receives no new changes
// before it has accepted some of them.
const maxRetries = 10_000

var retryWaits = backoff.Exponential{First: time.Second, Max: time.Minute}

func newRetries() *retries { return &retries{pending: map[keepwatch.Key]*retry{}} }

func (r *retries) full() bool { return r != nil && len(r.pending) >= maxRetries }

// due returns a channel that receives at the time of the first retry, nil if there is none.
// The caller must call stop.
func (r *retries) due() (first <-chan time.Time, stop func()) {
	if r == nil || len(r.pending) == 0 {
		return nil, func() {}
	}
	var earliest time.Time
	for _, one := range r.pending {
		if earliest.IsZero() || one.due.Before(earliest) {
			earliest = one.due
		}
	}
	timer := time.NewTimer(time.Until(earliest))
	return timer.C, func() { timer.Stop() }
}

// runDue runs the retries that are due.
func (h *handler) runDue() {
	now := time.Now()
	for _, r := range h.retries.pending {
		if h.stopped() {
			return
		}
		if !r.due.After(now) {
			h.try(r.notification, r.attempts)
		}
	}
}

// deliver delivers a notification, merged with a pending retry of the same object.
func (h *handler) deliver(o notification) {
	if h.retries == nil {
		_ = h.call(o) // call reported the error
		return
	}
	pending := h.retries.pending[o.key()]
	if pending == nil {
		h.try(o, 0)
		return
	}
	joined := pending.merge(o)
	if joined.old == nil && joined.new == nil {
		delete(h.retries.pending, o.key()) // created and deleted since the last accepted state
		return
	}
	h.try(joined, pending.attempts)
}

// merge returns one notification for two successive ones of an object.
func (o notification) merge(next notification) notification {
	joined := next
	joined.old, joined.initial, joined.resync = o.old, o.initial, o.resync && next.resync
	if o.old != nil && (o.new == nil || o.old.UID() != o.new.UID()) {
		joined.last, joined.final = o.last, o.final // of the UID that was delivered
	}
	return joined
}

func (o notification) key() keepwatch.Key {
	if o.new != nil {
		return o.new.Key()
	}
	return o.last.Key()
}

// try delivers a notification, and schedules a retry if the handler fails. A new UID under
// the same name is delivered as a deletion and an addition.
func (h *handler) try(o notification, attempts int) {
	if o.old != nil && o.new != nil && o.old.UID() != o.new.UID() {
		deletion := o
		deletion.new = nil
		if h.call(deletion) != nil {
			h.scheduleRetry(o, attempts)
			return
		}
		o = notification{at: o.at, new: o.new}
	}
	if h.call(o) != nil {
		h.scheduleRetry(o, attempts)
		return
	}
	delete(h.retries.pending, o.key())
}

func (h *handler) scheduleRetry(o notification, attempts int) {
	due := time.Now().Add(retryWaits.Wait(attempts))
	h.retries.pending[o.key()] = &retry{notification: o, attempts: attempts + 1, due: due}
}
