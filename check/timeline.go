package check

import (
	"fmt"
	"hash/maphash"
	"sort"

	"github.com/keepwatch/keepwatch"
)

// timeline is the history of one epoch: the writes of the earlier epochs that were not
// undone, and its own. Two timelines are equal up to the lowest base between them.
type timeline struct {
	epoch  int
	last   keepwatch.Revision
	filter Filter
	// view is σ(H), in order, and sums[i] is the fingerprint of the state after view[:i].
	view []event
	sums []uint64
	// keys has the states of each key, unfiltered, in order.
	keys map[keepwatch.Key][]state
}

// event is a change of a view.
type event struct {
	keepwatch.Change // as a consumer must receive it: for Deleted, Object is the prior state
	// edge is true if the object exists before and after: the filter's result changed.
	edge bool
}

// state is the state of a key from a revision on.
type state struct {
	from   keepwatch.Revision
	object keepwatch.Object // nil: none
	last   keepwatch.Object // the prior state, if object is nil
}

// timelines returns a timeline for each epoch.
func timelines(h History, f Filter) []*timeline {
	if len(h.Epochs) == 0 {
		panic("check: a history needs an epoch")
	}
	all := make([]*timeline, len(h.Epochs))
	var writes []Write
	for i, epoch := range h.Epochs {
		remaining := sort.Search(len(writes), func(j int) bool { return writes[j].Revision > epoch.Base })
		writes = append(writes[:remaining:remaining], epoch.Writes...)
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
			panic(fmt.Sprintf(
				"check: the history's write of %s at %d is out of order, or has another key or revision than its object", w.Key,
				w.Revision))
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
			panic(fmt.Sprintf("check: the history deletes %s at %d, which does not exist", w.Key, w.Revision))
		}
		next.last = prior
	}
	t.keys[w.Key] = append(t.keys[w.Key], next)
	before, after := t.filter.match(prior), t.filter.match(w.Object)
	edge := prior != nil && w.Object != nil && prior.UID() == w.Object.UID()
	switch {
	case before && after && edge:
		t.appendEvent(h, event{Change: keepwatch.Change{Type: keepwatch.Modified, Revision: w.Revision, Object: w.Object,
			Prior: prior}})
		return
	case before:
		t.appendEvent(h, event{Change: keepwatch.Change{Type: keepwatch.Deleted, Revision: w.Revision, Object: prior,
			Prior: prior}, edge: edge})
	}
	if after {
		t.appendEvent(h, event{Change: keepwatch.Change{Type: keepwatch.Added, Revision: w.Revision, Object: w.Object},
			edge: edge})
	}
}

func (t *timeline) appendEvent(h History, e event) {
	sum := t.sums[len(t.sums)-1]
	if e.Prior != nil {
		sum -= h.fingerprint(e.Prior)
	}
	if e.Type != keepwatch.Deleted {
		sum += h.fingerprint(e.Object)
	}
	t.view, t.sums = append(t.view, e), append(t.sums, sum)
}

// countUntil returns the number of the view's events at r or before.
func (t *timeline) countUntil(r keepwatch.Revision) int {
	return sort.Search(len(t.view), func(i int) bool { return t.view[i].Revision > r })
}

// between returns σ(H) on (from, to].
func (t *timeline) between(from, to keepwatch.Revision) []event {
	if to <= from {
		return nil
	}
	return t.view[t.countUntil(from):t.countUntil(to)]
}

// sum returns the fingerprint of σS(r).
func (t *timeline) sum(r keepwatch.Revision) uint64 { return t.sums[t.countUntil(r)] }

// object returns S(r) at a key, or nil.
func (t *timeline) object(key keepwatch.Key, r keepwatch.Revision) keepwatch.Object {
	states := t.keys[key]
	i := sort.Search(len(states), func(i int) bool { return states[i].from > r })
	if i == 0 {
		return nil
	}
	return states[i-1].object
}

// existed reports whether an object with o's key and UID existed at any time between two
// revisions, in view or not.
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

// visible returns σS(r) at a key, or nil.
func (t *timeline) visible(key keepwatch.Key, r keepwatch.Revision) keepwatch.Object {
	if o := t.object(key, r); t.filter.match(o) {
		return o
	}
	return nil
}

// fold returns σS(r).
func (t *timeline) fold(h History, r keepwatch.Revision) *fold {
	f := newFold(h)
	for key := range t.keys {
		if o := t.visible(key, r); o != nil {
			f.put(o)
		}
	}
	return f
}

// agrees reports whether the timelines of two epochs are equal up to r.
func (h History) agrees(earlier, later int, r keepwatch.Revision) bool {
	for i := earlier + 1; i <= later; i++ {
		if h.Epochs[i].Base < r {
			return false
		}
	}
	return true
}

// same reports whether a and b are the same state of the same object.
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

// fingerprint returns a hash of a state. The sum of the hashes identifies a set of states.
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
