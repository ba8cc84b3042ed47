package check

import (
	"fmt"
	"maps"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// gap compares a gap with the difference between the consumer's state and a timeline's
// view at the gap's end (P3), key by key: the order between keys is free.
func (j *judge) gap(t *timeline, g keepwatch.Gap) []finding {
	if g.To > t.last {
		return []finding{{P3, -1, fmt.Sprintf("a gap up to %d, the newest revision, at most", t.last),
			fmt.Sprintf("a gap up to %d", g.To)}}
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

// difference compares a gap with the difference between the consumer's fold and a
// timeline's view.
type difference struct {
	*judge
	timeline *timeline
	gap      keepwatch.Gap
	findings []finding
}

func (d *difference) addFinding(p Promise, change int, want, got string) {
	d.findings = append(d.findings, finding{p, change, want, got})
}

// key compares the changes of one key: received has their indexes in the gap. It reports
// the first mistake only.
func (d *difference) key(key keepwatch.Key, received []int) {
	before, after := d.fold.objects[key], d.timeline.visible(key, d.gap.To)
	received = d.dropHidden(received, before, after)
	wanted := d.wanted(before, after)
	if len(wanted) == 0 && len(received) == 1 && d.redefined(before, after, d.gap.Changes[received[0]]) {
		return
	}
	if len(wanted) == 1 && wanted[0].Type == keepwatch.Modified && len(received) == 2 && d.leftAt(before) > 0 {
		wanted = []keepwatch.Change{{Type: keepwatch.Deleted, Object: before}, {Type: keepwatch.Added, Object: after}}
	}
	for i := range max(len(wanted), len(received)) {
		switch {
		case i >= len(received):
			d.missing(wanted[i])
			return
		case i >= len(wanted):
			d.extra(received[i], before)
			return
		}
		c := d.gap.Changes[received[i]]
		if mismatch := d.mismatch(wanted[i], c); mismatch != "" {
			d.different(received[i], wanted[i], before, mismatch)
			return
		}
	}
}

// redefined reports whether a change shows the consumer's state by another definition of its type.
func (d *difference) redefined(before, after keepwatch.Object, c keepwatch.Change) bool {
	return d.history.Redefined != nil && before != nil && after != nil && c.Type == keepwatch.Modified &&
		c.Revision == c.Object.Revision() && d.history.same(after, c.Object) && d.history.Redefined(before, c.Object)
}

// wanted returns the changes that turn before into after.
func (d *difference) wanted(before, after keepwatch.Object) []keepwatch.Change {
	deleted := keepwatch.Change{Type: keepwatch.Deleted, Object: before}
	added := keepwatch.Change{Type: keepwatch.Added, Object: after}
	switch {
	case before == nil && after == nil, before != nil && after != nil && d.history.same(before, after):
		return nil
	case before == nil:
		return []keepwatch.Change{added}
	case after == nil:
		return []keepwatch.Change{deleted}
	case before.UID() != after.UID():
		return []keepwatch.Change{deleted, added}
	}
	return []keepwatch.Change{{Type: keepwatch.Modified, Object: after, Prior: before}}
}

// dropHidden removes the deletions of objects that existed, but were not in the view: see
// Judge.
func (d *difference) dropHidden(received []int, before, after keepwatch.Object) []int {
	var remaining []int
	for k, i := range received {
		c := d.gap.Changes[i]
		if c.Type != keepwatch.Deleted {
			return append(remaining, received[k:]...)
		}
		known := before != nil && before.UID() == c.Object.UID() || after != nil && after.UID() == c.Object.UID()
		if known || !d.hidden(c.Object) || !d.existedAs(c.Object) {
			remaining = append(remaining, i)
		}
	}
	return remaining
}

// mismatch describes how a change differs from the wanted one, or returns "".
func (d *difference) mismatch(w, c keepwatch.Change) string {
	entered := w.Type == keepwatch.Added && c.Type == keepwatch.Modified && d.hidden(w.Object)
	switch {
	case c.Type != w.Type && !entered || c.Object.UID() != w.Object.UID():
		return "another change"
	case c.Prior != nil && (c.Type == keepwatch.Added || c.Prior.UID() != c.Object.UID() || !d.existedAs(c.Prior)):
		return "a prior state that never was"
	case c.Type == keepwatch.Deleted:
		return d.deleteMismatch(w, c)
	case !d.history.same(w.Object, c.Object):
		return "another state"
	case c.Revision != c.Object.Revision():
		return "a revision that is not the object's"
	}
	return ""
}

// deleteMismatch is mismatch for a deletion. Its state must be the consumer's or a later
// one. Its revision must be the deletion's, or above it and not above the gap's end.
func (d *difference) deleteMismatch(w, c keepwatch.Change) string {
	forward := d.gap.Reason != keepwatch.GapRewind && d.gap.To > d.gap.From
	switch {
	case !d.existedAs(c.Object), forward && c.Object.Revision() < w.Object.Revision():
		return "a state that is not its last known"
	case c.Revision == d.gap.To:
	case !forward || c.Revision <= d.gap.From || c.Revision > d.gap.To || c.Revision < d.leftAt(w.Object):
		return fmt.Sprintf("a revision that is not the deletion's nor %d", d.gap.To)
	}
	return ""
}

// leftAt returns the revision at which an object left the view within the gap, or zero.
func (d *difference) leftAt(o keepwatch.Object) keepwatch.Revision {
	for _, e := range slices.Backward(d.timeline.between(d.gap.From, d.gap.To)) {
		if e.Type == keepwatch.Deleted && e.Object.UID() == o.UID() {
			return e.Revision
		}
	}
	return 0
}

// hidden reports whether an object may have existed at the gap's start outside of the
// view. The start may be any revision before the view's next event, because an object
// outside of the view moves no cursor.
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

// existedAs reports whether the object ever had this state, or was deleted at this
// revision.
func (d *difference) existedAs(o keepwatch.Object) bool {
	for _, k := range d.epochsFrom(0) {
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
	d.addFinding(promise, -1, d.describeWanted(w), "nothing")
}

func (d *difference) extra(i int, before keepwatch.Object) {
	c := d.gap.Changes[i]
	d.addFinding(d.promiseOf(c, before), i, "no change of "+c.Object.Key().String(), describe(c))
}

func (d *difference) different(i int, w keepwatch.Change, before keepwatch.Object, mismatch string) {
	c := d.gap.Changes[i]
	promise := d.promiseOf(c, before)
	if w.Type == keepwatch.Deleted {
		promise = P6
	}
	d.addFinding(promise, i, d.describeWanted(w), describe(c)+": "+mismatch)
}

// promiseOf returns the promise that a wrong change breaks: P7 or P5 for an old state, P3
// otherwise.
func (d *difference) promiseOf(c keepwatch.Change, before keepwatch.Object) Promise {
	if c.Type == keepwatch.Deleted || d.gap.Reason == keepwatch.GapRewind {
		return P3
	}
	if at, deleted := d.deleted[c.Object.UID()]; deleted && c.Object.Revision() <= at {
		return P7
	}
	if before != nil && before.UID() == c.Object.UID() && c.Object.Revision() < before.Revision() {
		return P5
	}
	return P3
}

// describeWanted formats a wanted change. It has no revision of its own.
func (d *difference) describeWanted(w keepwatch.Change) string {
	return fmt.Sprintf("%s %s (%s at %d)", w.Type, w.Object.Key(), w.Object.UID(), w.Object.Revision())
}
