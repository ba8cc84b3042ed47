package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// gap compares a gap with the difference between what the consumer holds and a
// timeline's view at the gap's end (P3), key by key: between keys the order is
// free.
func (j *judge) gap(t *timeline, g keepwatch.Gap) []finding {
	if g.To > t.last {
		return []finding{{P3, -1, fmt.Sprintf("a revision up to %d, the newest", t.last), fmt.Sprintf("a gap to %d", g.To)}}
	}
	d := difference{judge: j, timeline: t, gap: g}
	received := map[keepwatch.Key][]int{}
	for i, c := range g.Changes {
		received[c.Object.Key()] = append(received[c.Object.Key()], i)
	}
	keys := maps.Clone(received)
	for _, key := range slices.AppendSeq(slices.Collect(maps.Keys(t.keys)), maps.Keys(j.fold.objects)) {
		keys[key] = received[key]
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), keepwatch.Key.Compare) {
		d.key(key, received[key])
	}
	return d.findings
}

// difference is one between the consumer's fold and a timeline's view.
type difference struct {
	*judge
	timeline *timeline
	gap      keepwatch.Gap
	findings []finding
}

func (d *difference) find(p Promise, change int, want, got string) {
	d.findings = append(d.findings, finding{p, change, want, got})
}

// key compares what was received of one key: received are indexes of the gap's
// changes. What follows the first mistake is not looked at.
func (d *difference) key(key keepwatch.Key, received []int) {
	held, now := d.fold.objects[key], d.timeline.visible(key, d.gap.To)
	wanted := d.wanted(held, now)
	received = d.pass(received, held, now)
	for i := range max(len(wanted), len(received)) {
		switch {
		case i >= len(received):
			d.missing(wanted[i])
			return
		case i >= len(wanted):
			d.extra(received[i], held)
			return
		}
		c := d.gap.Changes[received[i]]
		if wrong := d.wrong(wanted[i], c); wrong != "" {
			d.mistaken(received[i], wanted[i], held, wrong)
			return
		}
	}
}

// wanted is what turns held into now.
func (d *difference) wanted(held, now keepwatch.Object) []keepwatch.Change {
	gone := keepwatch.Change{Type: keepwatch.Deleted, Object: held}
	came := keepwatch.Change{Type: keepwatch.Added, Object: now}
	switch {
	case held == nil && now == nil, held != nil && now != nil && d.history.same(held, now):
		return nil
	case held == nil:
		return []keepwatch.Change{came}
	case now == nil:
		return []keepwatch.Change{gone}
	case held.UID() != now.UID():
		return []keepwatch.Change{gone, came}
	}
	return []keepwatch.Change{{Type: keepwatch.Modified, Object: now, Prior: held}}
}

// pass leaves out deletions of what was there, but not in the view: see Judge.
func (d *difference) pass(received []int, held, now keepwatch.Object) []int {
	var kept []int
	for k, i := range received {
		c := d.gap.Changes[i]
		if c.Type != keepwatch.Deleted {
			return append(kept, received[k:]...)
		}
		mine := held != nil && held.UID() == c.Object.UID() || now != nil && now.UID() == c.Object.UID()
		if mine || !d.hidden(c.Object) || !d.was(c.Object) {
			kept = append(kept, i)
		}
	}
	return kept
}

// wrong says in which way a change is not the one that was wanted, "" if it is.
func (d *difference) wrong(w, c keepwatch.Change) string {
	entered := w.Type == keepwatch.Added && c.Type == keepwatch.Modified && d.hidden(w.Object)
	switch {
	case c.Type != w.Type && !entered || c.Object.UID() != w.Object.UID():
		return "another change"
	case c.Prior != nil && (c.Type == keepwatch.Added || c.Prior.UID() != c.Object.UID() || !d.was(c.Prior)):
		return "a prior state that never was"
	case c.Type == keepwatch.Deleted:
		return d.wrongDelete(w, c)
	case !d.history.same(w.Object, c.Object):
		return "another state"
	case c.Revision != c.Object.Revision():
		return "a revision that is not the object's"
	}
	return ""
}

// wrongDelete: the state is the consumer's or a later one, and the revision
// that of the deletion, or above it and no later than the gap's end.
func (d *difference) wrongDelete(w, c keepwatch.Change) string {
	forward := d.gap.Reason != keepwatch.GapRewind && d.gap.To > d.gap.From
	switch {
	case !d.was(c.Object), forward && c.Object.Revision() < w.Object.Revision():
		return "a state that is not its last known"
	case c.Revision == d.gap.To:
	case !forward || c.Revision <= d.gap.From || c.Revision > d.gap.To || c.Revision < d.left(w.Object):
		return fmt.Sprintf("a revision that is not the deletion's nor %d", d.gap.To)
	}
	return ""
}

// left is when an object left the view, 0 if the timeline does not say.
func (d *difference) left(o keepwatch.Object) keepwatch.Revision {
	for _, e := range slices.Backward(d.timeline.between(d.gap.From, d.gap.To)) {
		if e.Type == keepwatch.Deleted && e.Object.UID() == o.UID() {
			return e.Revision
		}
	}
	return 0
}

// hidden reports whether an object may have been there at the gap's start, out
// of view. The start is anywhere before the view's next event: what is out of view
// moves no cursor.
func (d *difference) hidden(o keepwatch.Object) bool {
	if d.timeline.filter == nil || d.gap.Reason == keepwatch.GapRewind {
		return false
	}
	end := d.gap.To
	if events := d.timeline.between(d.gap.From, d.gap.To); len(events) > 0 {
		end = events[0].Revision - 1
	}
	return d.timeline.existed(o, d.gap.From, end)
}

// was reports whether an object ever was in that state, or shows its deletion.
func (d *difference) was(o keepwatch.Object) bool {
	for _, k := range d.from(0) {
		for _, s := range d.timelines[k].keys[o.Key()] {
			if s.object != nil && d.history.same(s.object, o) {
				return true
			}
			if s.last != nil && s.last.UID() == o.UID() && s.from == o.Revision() && d.history.sameContent(s.last, o) {
				return true
			}
		}
	}
	return false
}

func (d *difference) missing(w keepwatch.Change) {
	promise := P3
	if w.Type == keepwatch.Deleted {
		promise = P6
		if o := d.timeline.object(w.Object.Key(), d.gap.To); o != nil && o.UID() == w.Object.UID() {
			promise = P10
		}
	}
	d.find(promise, -1, d.tell(w), "nothing")
}

func (d *difference) extra(i int, held keepwatch.Object) {
	c := d.gap.Changes[i]
	d.find(d.stale(c, held), i, "no change of "+c.Object.Key().String(), tell(c))
}

func (d *difference) mistaken(i int, w keepwatch.Change, held keepwatch.Object, wrong string) {
	c := d.gap.Changes[i]
	promise := d.stale(c, held)
	if w.Type == keepwatch.Deleted {
		promise = P6
	}
	d.find(promise, i, d.tell(w), tell(c)+": "+wrong)
}

// stale is the promise that a wrong change breaks: P7 or P5 for an old state, P3
// otherwise.
func (d *difference) stale(c keepwatch.Change, held keepwatch.Object) Promise {
	if c.Type == keepwatch.Deleted || d.gap.Reason == keepwatch.GapRewind {
		return P3
	}
	if at, dead := d.buried[c.Object.UID()]; dead && c.Object.Revision() <= at {
		return P7
	}
	if held != nil && held.UID() == c.Object.UID() && c.Object.Revision() < held.Revision() {
		return P5
	}
	return P3
}

// tell is a wanted change in words: its revision follows from the object.
func (d *difference) tell(w keepwatch.Change) string {
	return fmt.Sprintf("%s %s (%s at %d)", w.Type, w.Object.Key(), w.Object.UID(), w.Object.Revision())
}
