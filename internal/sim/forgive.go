package sim

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
)

// forgiven reports whether a violation is a lie of the source's and not ours:
// deliveries of the revisions it lied about may be wrong, and states that were
// shown before the gap that heals it; after that all has to be right.
func forgiven(c *consumer, v check.Violation, lies []Lie) bool {
	for _, l := range lies {
		if l.covers(c, v) {
			return true
		}
	}
	return false
}

// healing is how long it may take until a lie that was told in full is healed.
const healing = 5 * time.Minute

func (l Lie) covers(c *consumer, v check.Violation) bool {
	records := c.transcript.Records
	if len(records) == 0 {
		return false // it was told nothing, be it true or not
	}
	at := min(v.Record, len(records)-1)
	since := c.times[at].Sub(l.At)
	switch {
	case since < 0 || l.Fault == "duplicate":
		return false
	case v.Record < len(records) && (l.tells(records[at]) || l.mends(c, records[at]) || l.shows(records[at])):
		return true
	}
	for i := at; i >= 0 && !c.times[i].Before(l.At) && !l.tells(records[i]); i-- {
		if l.healed(records[i], c.arrived(l.At, c.times[i])) {
			return false
		}
	}
	return !l.Told || l.Apart || l.Interrupted || c.arrived(l.At, c.times[at]) || since < healing
}

// shows reports whether a record is a state of what was lied about, seen in the
// past: history keeps lies, too.
func (l Lie) shows(r check.Record) bool {
	shown, ok := r.(check.Shown)
	return ok && shown.Revision >= l.From && shown.Revision <= l.To
}

// tells reports whether a record is a delivery of what was lied about, or leads
// there.
func (l Lie) tells(r check.Record) bool {
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

// mends reports whether a record leads away from what was lied about, in a way
// that is wrong for who was not told it: a consumer that comes from another
// process, or one behind a filter, of which the store believed to know what was out
// of view; or back from there, if what was told looks as if it were of a later epoch.
func (l Lie) mends(c *consumer, r check.Record) bool {
	received, ok := r.(check.Received)
	if !ok {
		return false
	}
	switch d := received.Delivery.(type) {
	case keepwatch.Batch:
		return d.From == l.To
	case keepwatch.Gap:
		back := d.Reason == keepwatch.GapRewind
		return (back || (l.Apart || c.filter.Match != nil) && !c.steady) && d.From <= l.To && d.From >= l.From
	}
	return false
}

// healed reports whether a consumer's state was made right, whatever it was.
func (l Lie) healed(r check.Record, elsewhere bool) bool {
	switch r := r.(type) {
	case check.Received:
		gap, ok := r.Delivery.(keepwatch.Gap)
		return ok && l.heals(gap, elsewhere)
	case check.Resumed:
		return r.Cursor == 0 && !l.Blind && !l.Interrupted
	}
	return false
}
