package check

import (
	"fmt"
	"slices"
	"sort"

	"github.com/keepwatch/keepwatch"
)

// batch compares a batch with what a timeline has in its place (P2), and says
// what is wrong in the terms of the promise that is closest to it.
func (j *judge) batch(t *timeline, b keepwatch.Batch) []finding {
	c := comparison{judge: j, batch: b, events: t.between(b.From, b.To), late: slices.Clone(j.split)}
	c.pair()
	if b.To > t.last {
		c.find(c.hollow(), -1, fmt.Sprintf("a revision up to %d, the newest", t.last), fmt.Sprintf("one to %d", b.To))
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

// comparison is one of a batch with the events that it should have.
type comparison struct {
	*judge
	batch    keepwatch.Batch
	events   []event
	late     []event // that the batch before lacked
	pairs    []int   // for each change of the batch the event it is, else -1
	changes  []int   // for each event the change that it is, else -1
	findings []finding
}

func (c *comparison) find(p Promise, change int, want, got string) {
	c.findings = append(c.findings, finding{p, change, want, got})
}

// pair matches changes to events that they are equal to.
func (c *comparison) pair() {
	c.pairs = slices.Repeat([]int{-1}, len(c.batch.Changes))
	c.changes = slices.Repeat([]int{-1}, len(c.events))
	for i, g := range c.batch.Changes {
		for k := c.first(g.Revision); k < len(c.events) && c.events[k].Revision == g.Revision; k++ {
			if c.changes[k] < 0 && c.wrong(c.events[k], g) == "" {
				c.pairs[i], c.changes[k] = k, i
				break
			}
		}
	}
}

// first is the first event at r or after it.
func (c *comparison) first(r keepwatch.Revision) int {
	return sort.Search(len(c.events), func(k int) bool { return c.events[k].Revision >= r })
}

// wrong says in which way a change is not an event, "" if it is.
func (c *comparison) wrong(e event, g keepwatch.Change) string {
	h := c.history
	switch {
	case g.Type != e.Type || g.Revision != e.Revision || g.Object.Key() != e.Object.Key() || g.Object.UID() != e.Object.UID():
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

// order reports changes that come before one that precedes them in the history.
func (c *comparison) order() {
	last := -1
	for i, k := range c.pairs {
		if k < 0 {
			continue
		}
		if k < last {
			c.find(P2, i, "the history's order", fmt.Sprintf("%s behind %s", tell(c.events[k].Change), tell(c.events[last].Change)))
		}
		last = max(last, k)
	}
}

// extra reports a change that is not in the history at its place.
func (c *comparison) extra(i int, g keepwatch.Change) {
	if c.closest(i, g) {
		return
	}
	for k, e := range c.late {
		if c.wrong(e, g) == "" {
			c.late = slices.Delete(c.late, k, k+1)
			return
		}
	}
	held, shown := c.fold.objects[g.Object.Key()], g.Object.Revision()
	buried, dead := c.buried[g.Object.UID()]
	switch got := tell(g); {
	case g.Type != keepwatch.Deleted && dead && shown <= buried:
		c.find(P7, i, fmt.Sprintf("nothing of UID %s up to %d, where it was deleted", g.Object.UID(), buried), got)
	case g.Revision <= c.batch.From && g.Revision <= c.bookmark:
		c.find(P9, i, fmt.Sprintf("nothing up to the bookmark %d", c.bookmark), got)
	case g.Type != keepwatch.Deleted && held != nil && held.UID() == g.Object.UID() && shown <= held.Revision():
		c.find(P5, i, fmt.Sprintf("%s above %d", g.Object.Key(), held.Revision()), got)
	case g.Revision <= c.batch.From || g.Revision > c.batch.To:
		c.find(P2, i, fmt.Sprintf("changes of (%d, %d]", c.batch.From, c.batch.To), got)
	default:
		c.find(P2, i, "what was written", got)
	}
}

// closest looks for an event that was not delivered, of the change's revision
// and key: the change stands for it, in a wrong form.
func (c *comparison) closest(i int, g keepwatch.Change) bool {
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
			if g.Type != keepwatch.Deleted { // an update in the place of a delete and a create
				c.also(k, i, e, g)
			}
		}
		got := tell(g)
		if g.Type == e.Type {
			got += ", " + c.wrong(e, g)
		}
		c.find(promise, i, tell(e.Change), got)
		return true
	}
	return false
}

// also takes the create that follows a delete as delivered, where one change
// stands for both.
func (c *comparison) also(k, i int, e event, g keepwatch.Change) {
	if next := k + 1; next < len(c.events) && c.changes[next] < 0 {
		if n := c.events[next]; n.Object.Key() == e.Object.Key() && n.Revision == e.Revision && n.Object.UID() == g.Object.UID() {
			c.changes[next] = i
		}
	}
}

// missing reports an event that was not delivered.
func (c *comparison) missing(e event) {
	want := tell(e.Change)
	switch {
	case c.batch.Bookmark():
		c.find(P9, -1, want+" before the bookmark", fmt.Sprintf("the bookmark %d", c.batch.To))
	case e.Revision == c.batch.To && c.began(e.Revision):
		c.find(P8, -1, fmt.Sprintf("all of revision %d", e.Revision), "a batch without "+want)
	case e.edge:
		c.find(P10, -1, want, "nothing")
	case e.Type == keepwatch.Deleted:
		c.find(P6, -1, want, "nothing")
	default:
		c.find(P2, -1, want, "nothing")
	}
}

// began reports whether some of a revision was delivered.
func (c *comparison) began(r keepwatch.Revision) bool {
	for k, i := range c.changes {
		if i >= 0 && c.events[k].Revision == r {
			return true
		}
	}
	return false
}

// hollow is the promise broken by a revision that does not exist.
func (c *comparison) hollow() Promise {
	if c.batch.Bookmark() {
		return P9
	}
	return P2
}

// halved are the events of the batch's last revision that it lacks, where it has
// others of that revision: what P8 speaks of.
func (j *judge) halved(b keepwatch.Batch) []event {
	t := j.timelines[j.live[len(j.live)-1]]
	c := comparison{judge: j, batch: b, events: t.between(b.From, b.To)}
	c.pair()
	var lacking []event
	for k, i := range c.changes {
		if e := c.events[k]; i < 0 && e.Revision == b.To && c.began(e.Revision) {
			lacking = append(lacking, e)
		}
	}
	return lacking
}

// tell is a change in words.
func tell(c keepwatch.Change) string {
	return fmt.Sprintf("%s %s at %d (%s at %d)", c.Type, c.Object.Key(), c.Revision, c.Object.UID(), c.Object.Revision())
}
