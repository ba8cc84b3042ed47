package sim

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// explained reports whether a breach of the source explains a violation: deliveries of the
// breach's revisions may be wrong, and so may states shown before the gap that repairs it.
// After the gap all must be correct.
func explained(c *consumer, v check.Violation, breaches []Breach) bool {
	for _, l := range breaches {
		if l.explains(c, v) {
			return true
		}
	}
	return false
}

// repairTime bounds the time from a breach's delivery to its repair.
const repairTime = 5 * time.Minute

func (l Breach) explains(c *consumer, v check.Violation) bool {
	records := c.transcript.Records
	if len(records) == 0 {
		return false // it has received nothing
	}
	at := min(v.Record, len(records)-1)
	since := c.times[at].Sub(l.At)
	switch {
	case since < 0 || l.Fault == "duplicate":
		return false
	case v.Record < len(records) && (l.delivers(records[at]) || l.undoes(c, records[at]) || l.shows(records[at])):
		return true
	}
	for i := at; i >= 0 && !c.times[i].Before(l.At) && !l.delivers(records[i]); i-- {
		if l.repairedBy(records[i], c.moved(l.At, c.times[i])) {
			return false
		}
	}
	return !l.Delivered || l.Shared || l.Interrupted || c.moved(l.At, c.times[at]) || since < repairTime
}

// shows reports whether a record is a past state at a revision of the breach: the store's
// history has the breach too.
func (l Breach) shows(r check.Record) bool {
	shown, ok := r.(check.Shown)
	return ok && shown.Revision >= l.From && shown.Revision <= l.To
}

// delivers reports whether a record is a delivery of the breach's revisions.
func (l Breach) delivers(r check.Record) bool {
	received, ok := r.(check.Received)
	if !ok {
		return false
	}
	switch d := received.Delivery.(type) {
	case keepwatch.Batch:
		return d.From < l.To && d.To >= l.From
	case keepwatch.Gap:
		return d.To <= l.To && d.To >= l.From
	}
	return false
}

// undoes reports whether a record leads from the breach's revisions to a correct state, and
// is wrong for a consumer that has not received the breach: a consumer from another process,
// or one with a filter, whose view the store knows wrongly. It is also a rewind, if the
// breach looks like a later epoch.
func (l Breach) undoes(c *consumer, r check.Record) bool {
	received, ok := r.(check.Received)
	if !ok {
		return false
	}
	switch d := received.Delivery.(type) {
	case keepwatch.Batch:
		return d.From == l.To
	case keepwatch.Gap:
		back := d.Reason == keepwatch.GapRewind
		return (back || (l.Shared || c.filter.Match != nil) && !c.steady) && d.From <= l.To && d.From >= l.From
	}
	return false
}

// repairedBy reports whether a record makes any consumer's state correct.
func (l Breach) repairedBy(r check.Record, elsewhere bool) bool {
	switch r := r.(type) {
	case check.Received:
		gap, ok := r.Delivery.(keepwatch.Gap)
		return ok && l.repairs(gap, elsewhere)
	case check.Resumed:
		return r.Cursor == 0 && !l.Undetectable && !l.Interrupted
	}
	return false
}
