package informer

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// debts are the objects for which a handler has failed. Each will be told again,
// from the state that the handler has taken last to the newest; what happens to
// it meanwhile joins that.
type debts struct{ of map[keepwatch.Key]*debt }

type debt struct {
	occurrence
	attempts int
	due      time.Time
}

const (
	// maxDebts bounds them: a handler that owes so many is told nothing new before it
	// has taken some of them.
	maxDebts = 10_000

	firstRetry = time.Second
	lastRetry  = time.Minute
)

func newDebts() *debts { return &debts{of: map[keepwatch.Key]*debt{}} }

func (d *debts) full() bool { return d != nil && len(d.of) >= maxDebts }

// due is the time of the first of them, never if there is none; stop must be
// called.
func (d *debts) due() (first <-chan time.Time, stop func()) {
	if d == nil || len(d.of) == 0 {
		return nil, func() {}
	}
	var earliest time.Time
	for _, debt := range d.of {
		if earliest.IsZero() || debt.due.Before(earliest) {
			earliest = debt.due
		}
	}
	timer := time.NewTimer(time.Until(earliest))
	return timer.C, func() { timer.Stop() }
}

// pay tells what is due.
func (h *handler) pay() {
	now := time.Now()
	for _, debt := range h.debts.of {
		if h.left() {
			return
		}
		if !debt.due.After(now) {
			h.try(debt.occurrence, debt.attempts)
		}
	}
}

// deliver tells what happened, together with what is owed of the same object.
func (h *handler) deliver(o occurrence) {
	if h.debts == nil {
		_ = h.call(o) // was reported
		return
	}
	owed := h.debts.of[o.key()]
	if owed == nil {
		h.try(o, 0)
		return
	}
	joined := owed.join(o)
	if joined.old == nil && joined.new == nil {
		delete(h.debts.of, o.key()) // it came and went
		return
	}
	h.try(joined, owed.attempts)
}

// join is one occurrence in the place of two.
func (o occurrence) join(next occurrence) occurrence {
	joined := next
	joined.old, joined.initial, joined.resync = o.old, o.initial, o.resync && next.resync
	if o.old != nil && (o.new == nil || o.old.UID() != o.new.UID()) {
		joined.last, joined.final = o.last, o.final // of the life that was told
	}
	return joined
}

func (o occurrence) key() keepwatch.Key {
	if o.new != nil {
		return o.new.Key()
	}
	return o.last.Key()
}

// try tells an occurrence, and keeps it owed if that fails. Another life under an
// old name is the end of one and the beginning of the other.
func (h *handler) try(o occurrence, attempts int) {
	if o.old != nil && o.new != nil && o.old.UID() != o.new.UID() {
		end := o
		end.new = nil
		if h.call(end) != nil {
			h.owe(o, attempts)
			return
		}
		o = occurrence{at: o.at, new: o.new}
	}
	if h.call(o) != nil {
		h.owe(o, attempts)
		return
	}
	delete(h.debts.of, o.key())
}

func (h *handler) owe(o occurrence, attempts int) {
	wait := min(firstRetry<<min(attempts, 10), lastRetry)
	h.debts.of[o.key()] = &debt{occurrence: o, attempts: attempts + 1, due: time.Now().Add(wait)}
}
