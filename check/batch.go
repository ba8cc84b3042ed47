package check

import (
	"fmt"
	"slices"
	"sort"

	"github.com/keepwatch/keepwatch"
)

// batch compares a batch with the timeline's events in (From, To] (P2). Each finding names
// the promise that describes the difference best.
func (j *judge) batch(t *timeline, b keepwatch.Batch) []finding {
	c := comparison{judge: j, batch: b, events: t.between(b.From, b.To), late: slices.Clone(j.split)}
	c.pair()
	if b.To > t.last {
		c.addFinding(c.promiseOfEnd(), -1, fmt.Sprintf("a batch up to %d, the newest revision, at most", t.last),
			fmt.Sprintf("a batch up to %d", b.To))
	}
	c.order()
	for i, k := range c.pairs {
		if k < 0 {
			c.extra(i, b.Changes[i])
		}
	}
	for k, i := range c.changes {
		if i < 0 {
			c.missing(c.events[k])
		}
	}
	return c.findings
}

// comparison compares a batch with the events that it should have.
type comparison struct {
	*judge
	batch    keepwatch.Batch
	events   []event
	late     []event // missing in the batch before; see judge.split
	pairs    []int   // the index of each change's event, or -1
	changes  []int   // the index of each event's change, or -1
	findings []finding
}

func (c *comparison) addFinding(p Promise, change int, want, got string) {
	c.findings = append(c.findings, finding{p, change, want, got})
}

// pair matches the changes to equal events.
func (c *comparison) pair() {
	c.pairs = slices.Repeat([]int{-1}, len(c.batch.Changes))
	c.changes = slices.Repeat([]int{-1}, len(c.events))
	for i, g := range c.batch.Changes {
		for k := c.first(g.Revision); k < len(c.events) && c.events[k].Revision == g.Revision; k++ {
			if c.changes[k] < 0 && c.mismatch(c.events[k], g) == "" {
				c.pairs[i], c.changes[k] = k, i
				break
			}
		}
	}
}

// first returns the index of the first event at r or after it.
func (c *comparison) first(r keepwatch.Revision) int {
	return sort.Search(len(c.events), func(k int) bool { return c.events[k].Revision >= r })
}

// mismatch describes how a change differs from an event, or returns "".
func (c *comparison) mismatch(e event, g keepwatch.Change) string {
	h := c.history
	switch {
	case g.Type != e.Type || g.Revision != e.Revision || g.Object.Key() != e.Object.Key() ||
		g.Object.UID() != e.Object.UID():
		return "another event"
	case g.Type == keepwatch.Deleted && g.Object.Revision() != e.Object.Revision() && g.Object.Revision() != e.Revision,
		g.Type != keepwatch.Deleted && g.Object.Revision() != e.Object.Revision():
		return "another state"
	case !h.sameContent(e.Object, g.Object):
		return "another content"
	case g.Prior != nil && (e.Prior == nil || !h.same(e.Prior, g.Prior)):
		return "another prior state"
	}
	return ""
}

// order reports changes that follow a later event of the history.
func (c *comparison) order() {
	last := -1
	for i, k := range c.pairs {
		if k < 0 {
			continue
		}
		if k < last {
			c.addFinding(P2, i, "the history's order", fmt.Sprintf("%s after %s", describe(c.events[k].Change),
				describe(c.events[last].Change)))
		}
		last = max(last, k)
	}
}

// extra reports a change that equals no event of the batch's interval.
func (c *comparison) extra(i int, g keepwatch.Change) {
	if c.matchByKey(i, g) {
		return
	}
	for k, e := range c.late {
		if c.mismatch(e, g) == "" {
			c.late = slices.Delete(c.late, k, k+1)
			return
		}
	}
	known, revision := c.fold.objects[g.Object.Key()], g.Object.Revision()
	deletedAt, deleted := c.deleted[g.Object.UID()]
	switch got := describe(g); {
	case g.Type != keepwatch.Deleted && deleted && revision <= deletedAt:
		c.addFinding(P7, i, fmt.Sprintf("nothing of UID %s up to %d, where it was deleted", g.Object.UID(), deletedAt), got)
	case g.Revision <= c.batch.From && g.Revision <= c.bookmark:
		c.addFinding(P9, i, fmt.Sprintf("nothing up to the bookmark %d", c.bookmark), got)
	case g.Type != keepwatch.Deleted && known != nil && known.UID() == g.Object.UID() && revision <= known.Revision():
		c.addFinding(P5, i, fmt.Sprintf("a state of %s above %d", g.Object.Key(), known.Revision()), got)
	case g.Revision <= c.batch.From || g.Revision > c.batch.To:
		c.addFinding(P2, i, fmt.Sprintf("changes of (%d, %d]", c.batch.From, c.batch.To), got)
	default:
		c.addFinding(P2, i, "only changes of the history", got)
	}
}

// matchByKey matches a change to an event of its revision and key that no other change
// matches, and reports the difference. It returns false if there is none.
func (c *comparison) matchByKey(i int, g keepwatch.Change) bool {
	for k := c.first(g.Revision); k < len(c.events) && c.events[k].Revision == g.Revision; k++ {
		e := c.events[k]
		if c.changes[k] >= 0 || e.Object.Key() != g.Object.Key() {
			continue
		}
		c.changes[k] = i
		promise := P2
		switch {
		case e.edge:
			promise = P10
		case e.Type == keepwatch.Deleted:
			promise = P6
			if g.Type != keepwatch.Deleted { // an update instead of a delete and a create
				c.matchCreate(k, i, e, g)
			}
		}
		got := describe(g)
		if g.Type == e.Type {
			got += ", " + c.mismatch(e, g)
		}
		c.addFinding(promise, i, describe(e.Change), got)
		return true
	}
	return false
}

// matchCreate matches a change also to the create that follows a delete, if the change
// replaces both.
func (c *comparison) matchCreate(k, i int, e event, g keepwatch.Change) {
	if next := k + 1; next < len(c.events) && c.changes[next] < 0 {
		if n := c.events[next]; n.Object.Key() == e.Object.Key() && n.Revision == e.Revision &&
			n.Object.UID() == g.Object.UID() {
			c.changes[next] = i
		}
	}
}

// missing reports an event that no change matches.
func (c *comparison) missing(e event) {
	want := describe(e.Change)
	switch {
	case c.batch.Bookmark():
		c.addFinding(P9, -1, want+" before the bookmark", fmt.Sprintf("the bookmark %d without it", c.batch.To))
	case e.Revision == c.batch.To && c.began(e.Revision):
		c.addFinding(P8, -1, fmt.Sprintf("all of revision %d", e.Revision), "a batch without "+want)
	case e.edge:
		c.addFinding(P10, -1, want, "nothing")
	case e.Type == keepwatch.Deleted:
		c.addFinding(P6, -1, want, "nothing")
	default:
		c.addFinding(P2, -1, want, "nothing")
	}
}

// began reports whether the batch has an event of a revision.
func (c *comparison) began(r keepwatch.Revision) bool {
	for k, i := range c.changes {
		if i >= 0 && c.events[k].Revision == r {
			return true
		}
	}
	return false
}

// promiseOfEnd returns the promise that the batch breaks if its end does not exist.
func (c *comparison) promiseOfEnd() Promise {
	if c.batch.Bookmark() {
		return P9
	}
	return P2
}

// splitEvents returns the events of the batch's last revision that are missing in it, if it
// has others of that revision (P8).
func (j *judge) splitEvents(b keepwatch.Batch) []event {
	t := j.timelines[j.epochs[len(j.epochs)-1]]
	c := comparison{judge: j, batch: b, events: t.between(b.From, b.To)}
	c.pair()
	var missing []event
	for k, i := range c.changes {
		if e := c.events[k]; i < 0 && e.Revision == b.To && c.began(e.Revision) {
			missing = append(missing, e)
		}
	}
	return missing
}

// describe formats a change.
func describe(c keepwatch.Change) string {
	return fmt.Sprintf("%s %s at %d (%s at %d)", c.Type, c.Object.Key(), c.Revision, c.Object.UID(), c.Object.Revision())
}
