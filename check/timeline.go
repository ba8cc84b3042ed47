package check

import (
	"fmt"
	"hash/maphash"
	"sort"

	"github.com/keepwatch/keepwatch"
)

// timeline is the history as it looks from one epoch: its own writes behind
// those of the epochs before that were not undone. Two timelines are one up to
// the lowest base between them.
type timeline struct {
	epoch  int
	last   keepwatch.Revision
	filter Filter
	// view is σ(H), in order, and sums[i] the sum of the view after view[:i].
	view []event
	sums []uint64
	// keys has the states of each key, unfiltered, in order.
	keys map[keepwatch.Key][]state
}

// event is a change that a view goes through.
type event struct {
	keepwatch.Change // as it has to arrive: for Deleted, Object is the state before
	// edge: the object is there before and after; what changed is the filter's answer.
	edge bool
}

// state is what a key was from a revision on.
type state struct {
	from   keepwatch.Revision
	object keepwatch.Object // nil: nothing
	last   keepwatch.Object // what it was before, if now it is nothing
}

// timelines returns one for each epoch.
func timelines(h History, f Filter) []*timeline {
	if len(h.Epochs) == 0 {
		panic("check: a history needs an epoch")
	}
	all := make([]*timeline, len(h.Epochs))
	var writes []Write
	for i, epoch := range h.Epochs {
		keep := sort.Search(len(writes), func(j int) bool { return writes[j].Revision > epoch.Base })
		writes = append(writes[:keep:keep], epoch.Writes...)
		all[i] = newTimeline(h, i, writes, f)
	}
	return all
}

func newTimeline(h History, epoch int, writes []Write, f Filter) *timeline {
	t := &timeline{
		epoch: epoch, last: max(h.Epochs[epoch].Base, h.Epochs[epoch].Last), filter: f,
		keys: map[keepwatch.Key][]state{},
		view: make([]event, 0, len(writes)), sums: append(make([]uint64, 0, 1+len(writes)), 0),
	}
	before := keepwatch.Revision(0)
	for _, w := range writes {
		if w.Revision < before || w.Object != nil && (w.Object.Key() != w.Key || w.Object.Revision() != w.Revision) {
			panic(fmt.Sprintf("check: the history's write of %s at %d is out of order or not of its object", w.Key, w.Revision))
		}
		before = w.Revision
		t.write(h, w)
	}
	t.last = max(t.last, before)
	return t
}

func (t *timeline) write(h History, w Write) {
	prior := t.object(w.Key, w.Revision)
	next := state{from: w.Revision, object: w.Object}
	if w.Object == nil {
		if prior == nil {
			panic(fmt.Sprintf("check: the history deletes %s at %d, where nothing is", w.Key, w.Revision))
		}
		next.last = prior
	}
	t.keys[w.Key] = append(t.keys[w.Key], next)
	before, after := t.filter.match(prior), t.filter.match(w.Object)
	edge := prior != nil && w.Object != nil && prior.UID() == w.Object.UID()
	switch {
	case before && after && edge:
		t.see(h, event{Change: keepwatch.Change{Type: keepwatch.Modified, Revision: w.Revision, Object: w.Object, Prior: prior}})
		return
	case before:
		t.see(h, event{Change: keepwatch.Change{Type: keepwatch.Deleted, Revision: w.Revision, Object: prior, Prior: prior}, edge: edge})
	}
	if after {
		t.see(h, event{Change: keepwatch.Change{Type: keepwatch.Added, Revision: w.Revision, Object: w.Object}, edge: edge})
	}
}

func (t *timeline) see(h History, e event) {
	sum := t.sums[len(t.sums)-1]
	if e.Prior != nil {
		sum -= h.fingerprint(e.Prior)
	}
	if e.Type != keepwatch.Deleted {
		sum += h.fingerprint(e.Object)
	}
	t.view, t.sums = append(t.view, e), append(t.sums, sum)
}

// until is how many of the view's events are at r or before.
func (t *timeline) until(r keepwatch.Revision) int {
	return sort.Search(len(t.view), func(i int) bool { return t.view[i].Revision > r })
}

// between is σ(H) on (from, to].
func (t *timeline) between(from, to keepwatch.Revision) []event {
	if to <= from {
		return nil
	}
	return t.view[t.until(from):t.until(to)]
}

// sum is that of σS(r).
func (t *timeline) sum(r keepwatch.Revision) uint64 { return t.sums[t.until(r)] }

// object is S(r) at a key, nil if nothing is there.
func (t *timeline) object(key keepwatch.Key, r keepwatch.Revision) keepwatch.Object {
	states := t.keys[key]
	i := sort.Search(len(states), func(i int) bool { return states[i].from > r })
	if i == 0 {
		return nil
	}
	return states[i-1].object
}

// existed reports whether an object with o's key and UID was there at any time
// between two revisions, in view or not.
func (t *timeline) existed(o keepwatch.Object, from, to keepwatch.Revision) bool {
	states := t.keys[o.Key()]
	for i, s := range states {
		over := i+1 < len(states) && states[i+1].from <= from
		if s.object != nil && s.object.UID() == o.UID() && s.from <= to && !over {
			return true
		}
	}
	return false
}

// visible is σS(r) at a key.
func (t *timeline) visible(key keepwatch.Key, r keepwatch.Revision) keepwatch.Object {
	if o := t.object(key, r); t.filter.match(o) {
		return o
	}
	return nil
}

// fold is σS(r).
func (t *timeline) fold(h History, r keepwatch.Revision) *fold {
	f := newFold(h)
	for key := range t.keys {
		if o := t.visible(key, r); o != nil {
			f.put(o)
		}
	}
	return f
}

// agrees reports whether t is the same as the earlier timeline with an index, up
// to r.
func (h History) agrees(earlier, later int, r keepwatch.Revision) bool {
	for i := earlier + 1; i <= later; i++ {
		if h.Epochs[i].Base < r {
			return false
		}
	}
	return true
}

// same reports whether two objects are one state of one object.
func (h History) same(a, b keepwatch.Object) bool {
	return a.Key() == b.Key() && a.UID() == b.UID() && a.Revision() == b.Revision() && h.sameContent(a, b)
}

func (h History) sameContent(a, b keepwatch.Object) bool {
	if h.Content == nil || a == b {
		return true
	}
	x, y := h.Content(a), h.Content(b)
	return x == y || x == "" || y == ""
}

var seed = maphash.MakeSeed()

// fingerprint is equal for the same state.
func (h History) fingerprint(o keepwatch.Object) uint64 {
	type identity struct {
		key      keepwatch.Key
		uid      keepwatch.UID
		revision keepwatch.Revision
		content  string
	}
	id := identity{key: o.Key(), uid: o.UID(), revision: o.Revision()}
	if h.Content != nil {
		id.content = h.Content(o)
	}
	return maphash.Comparable(seed, id)
}
