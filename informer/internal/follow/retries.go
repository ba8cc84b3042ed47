package follow

import (
	"container/heap"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
)

// retries holds the objects whose handler call failed. A retry delivers the change from the
// last accepted state to the newest one: later changes of the object are merged into it.
type retries struct {
	pending map[keepwatch.Key]*retry
	order   byDue // the same
}

type retry struct {
	Notification
	attempts int
	due      time.Time
	index    int // in retries.order
}

// maxRetries bounds the pending retries. A handler with so many receives no other object, and no later change of these,
// before it has accepted one of them.
const maxRetries = 10_000

var retryWaits = backoff.Exponential{First: time.Second, Max: time.Minute}

func newRetries() *retries { return &retries{pending: map[keepwatch.Key]*retry{}} }

// byDue is a heap of retries. The first one is due first.
type byDue []*retry

func (b byDue) Len() int           { return len(b) }
func (b byDue) Less(i, j int) bool { return b[i].due.Before(b[j].due) }
func (b byDue) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].index, b[j].index = i, j
}
func (b *byDue) Push(r any) {
	r.(*retry).index = len(*b)
	*b = append(*b, r.(*retry))
}
func (b *byDue) Pop() any {
	last := len(*b) - 1
	r := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return r
}

// due returns a channel that receives at the time of the first retry, nil if there is none.
// The caller must call stop.
func (r *retries) due() (first <-chan time.Time, stop func()) {
	if r == nil || len(r.order) == 0 {
		return nil, func() {}
	}
	timer := time.NewTimer(time.Until(r.order[0].due))
	return timer.C, func() { timer.Stop() }
}

// schedule adds the next retry of an object, or changes it.
func (r *retries) schedule(n Notification, attempts int) {
	due := time.Now().Add(retryWaits.Wait(attempts))
	if pending := r.pending[n.Key()]; pending != nil {
		pending.Notification, pending.attempts, pending.due = n, attempts+1, due
		heap.Fix(&r.order, pending.index)
		return
	}
	next := &retry{Notification: n, attempts: attempts + 1, due: due}
	r.pending[n.Key()] = next
	heap.Push(&r.order, next)
}

// remove removes the retry of an object, if there is one.
func (r *retries) remove(key keepwatch.Key) {
	if pending := r.pending[key]; pending != nil {
		heap.Remove(&r.order, pending.index)
		delete(r.pending, key)
	}
}

// runDue runs the retries that are due. Those that fail again are due later.
func (h *Handler) runDue() {
	if h.retries == nil {
		return
	}
	for now := time.Now(); len(h.retries.order) > 0 && !h.stopped(); {
		first := h.retries.order[0]
		if first.due.After(now) {
			return
		}
		h.try(first.Notification, first.attempts)
	}
}

// waitForRoom runs retries until another object can have one. It reports false if the handler was removed.
func (h *Handler) waitForRoom() bool {
	for len(h.retries.pending) >= maxRetries && !h.stopped() {
		due, stop := h.retries.due()
		select {
		case <-due:
			h.runDue()
		case <-h.stopping:
		}
		stop()
	}
	return !h.stopped()
}

// deliver delivers a notification, merged with a pending retry of the same object.
func (h *Handler) deliver(n Notification) {
	if h.retries == nil {
		_ = h.call(n) // call reported the error
		return
	}
	pending := h.retries.pending[n.Key()]
	if pending == nil {
		if h.waitForRoom() {
			h.try(n, 0)
		}
		return
	}
	merged := pending.merge(n)
	if merged.Old == nil && merged.New == nil {
		h.retries.remove(n.Key()) // created and deleted since the last accepted state
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
			h.retries.schedule(n, attempts)
			return
		}
		n = Notification{Revision: n.Revision, New: n.New}
	}
	if h.call(n) != nil {
		h.retries.schedule(n, attempts)
		return
	}
	h.retries.remove(n.Key())
}
