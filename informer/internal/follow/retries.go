package follow

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
)

// retries holds the objects whose handler call failed. A retry delivers the change from the
// last accepted state to the newest one: later changes of the object are merged into it.
type retries struct{ pending map[keepwatch.Key]*retry }

type retry struct {
	Notification
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
func (h *Handler) runDue() {
	if h.retries == nil {
		return
	}
	now := time.Now()
	for _, r := range h.retries.pending {
		if h.stopped() {
			return
		}
		if !r.due.After(now) {
			h.try(r.Notification, r.attempts)
		}
	}
}

// deliver delivers a notification, merged with a pending retry of the same object.
func (h *Handler) deliver(n Notification) {
	if h.retries == nil {
		_ = h.call(n) // call reported the error
		return
	}
	pending := h.retries.pending[n.Key()]
	if pending == nil {
		h.try(n, 0)
		return
	}
	merged := pending.merge(n)
	if merged.Old == nil && merged.New == nil {
		delete(h.retries.pending, n.Key()) // created and deleted since the last accepted state
		return
	}
	h.try(merged, pending.attempts)
}

// merge returns one notification for two successive ones of an object.
func (n Notification) merge(next Notification) Notification {
	merged := next
	merged.Old, merged.Initial, merged.Resync = n.Old, n.Initial, n.Resync && next.Resync
	if n.Old != nil && (n.New == nil || n.Old.UID() != n.New.UID()) {
		merged.Last, merged.Final = n.Last, n.Final // of the UID that was delivered
	}
	return merged
}

// try delivers a notification, and schedules a retry if the handler fails. A new UID under
// the same name is delivered as a deletion and an addition.
func (h *Handler) try(n Notification, attempts int) {
	if n.Old != nil && n.New != nil && n.Old.UID() != n.New.UID() {
		deletion := n
		deletion.New = nil
		if h.call(deletion) != nil {
			h.scheduleRetry(n, attempts)
			return
		}
		n = Notification{Revision: n.Revision, New: n.New}
	}
	if h.call(n) != nil {
		h.scheduleRetry(n, attempts)
		return
	}
	delete(h.retries.pending, n.Key())
}

func (h *Handler) scheduleRetry(n Notification, attempts int) {
	due := time.Now().Add(retryWaits.Wait(attempts))
	h.retries.pending[n.Key()] = &retry{Notification: n, attempts: attempts + 1, due: due}
}
