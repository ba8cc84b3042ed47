package store

import (
	"sort"

	"github.com/keepwatch/keepwatch"
)

// fill bounds the entries of a segment, and fanout the children of an inner node.
// A write copies one segment and one node a level: with some dozens and less both
// the copies and the tree's height are small.
const (
	fill   = 32
	fanout = 16
)

// maxHeight bounds the levels of a tree: with a quarter of the fanout at each
// they hold more than memory does.
const maxHeight = 20

// entry is one object in the tree. It never changes.
type entry struct {
	object keepwatch.Object
	// created is the store's revision at which this UID entered it, and stored the
	// one at which this state did: that of the change it came with, or of the list.
	// The object's own revision may be lower than a list's, and must not be used in
	// their place: a list may bring what history had lost.
	created, stored keepwatch.Revision
}

// node is a subtree: a segment of entries, or an inner node.
//
// Invariants, for every node that is reachable from a published tree: it never
// changes; exactly one of entries and children is non-empty, and keys is as long;
// all segments have the same depth; every node but those on the right edge of the
// tree is at least a quarter full.
type node struct {
	keys *keys // of the entries, or the lowest below each child
	// memos are what was derived from a segment since it was published.
	memos    memos
	entries  []*entry
	children []*node
	count    int // entries below
	// newest is at least the highest stored revision below. It may be too high after
	// a removal; then a search for newer objects looks here in vain.
	newest keepwatch.Revision
	// owner is the number of the editor that made the node and may still change it.
	owner uint64
}

func (n *node) leaf() bool { return n.children == nil }

// room is how many entries or children the node may have.
func (n *node) room() int {
	if n.leaf() {
		return fill
	}
	return fanout
}

// low is the lowest key below.
func (n *node) low() keepwatch.Key { return n.keys.list[0] }

// high is the highest key below.
func (n *node) high() keepwatch.Key {
	for !n.leaf() {
		n = n.children[len(n.children)-1]
	}
	return n.keys.list[len(n.keys.list)-1]
}

// child is the place of the child that holds key or would.
func (n *node) child(key keepwatch.Key) int {
	i, found := n.keys.find(key)
	if found {
		return i
	}
	return max(0, i-1)
}

// tree is an immutable ordered map from key to entry. The zero value is empty.
type tree struct{ root *node }

func (t tree) len() int {
	if t.root == nil {
		return 0
	}
	return t.root.count
}

// place is where a key is in a tree or would be.
type place struct {
	*entry                  // nil if the key is not there
	steps  [maxHeight]uint8 // the child to take at each level, and the index in the segment
}

// seek finds the place of a key. It guesses first: where keys are found, as most
// are, that reads fewer strings.
func (t tree) seek(key keepwatch.Key) place {
	if p := t.descend(key, (*keys).guess); p.entry != nil {
		return p
	}
	return t.descend(key, (*keys).find)
}

func (t tree) descend(key keepwatch.Key, find func(*keys, keepwatch.Key) (int, bool)) place {
	var p place
	n := t.root
	if n == nil {
		return p
	}
	level := 0
	for ; !n.leaf(); level++ {
		i, found := find(n.keys, key)
		if !found {
			i = max(0, i-1)
		}
		p.steps[level] = uint8(i)
		n = n.children[i]
	}
	i, found := find(n.keys, key)
	p.steps[level] = uint8(i)
	if found {
		p.entry = n.entries[i]
	}
	return p
}

// get finds an entry, nil if there is none.
func (t tree) get(key keepwatch.Key) *entry { return t.seek(key).entry }

// leaf is the segment that holds a key or would, nil in an empty tree.
func (t tree) leaf(key keepwatch.Key) *node {
	n := t.root
	for n != nil && !n.leaf() {
		n = n.children[n.child(key)]
	}
	return n
}

// finger finds entries of keys that rise: it looks first where the last one was.
type finger struct {
	tree tree
	leaf *node // nil before the first
}

// get finds an entry, nil if there is none.
func (f *finger) get(key keepwatch.Key) *entry {
	if f.leaf == nil || f.leaf.high().Compare(key) < 0 {
		if f.leaf = f.tree.leaf(key); f.leaf == nil {
			return nil
		}
	}
	if i, found := f.leaf.keys.guess(key); found {
		return f.leaf.entries[i]
	}
	return nil
}

// rank is how many keys are lower than key, and whether that is in the tree.
func (t tree) rank(key keepwatch.Key) (rank int, ok bool) {
	n := t.root
	if n == nil {
		return 0, false
	}
	for !n.leaf() {
		i := n.child(key)
		for _, c := range n.children[:i] {
			rank += c.count
		}
		n = n.children[i]
	}
	i, ok := n.keys.find(key)
	return rank + i, ok
}

// all calls yield for the segments in order, until it returns false.
func (t tree) all(yield func(Segment) bool) {
	if t.root != nil {
		t.root.all(yield)
	}
}

func (n *node) all(yield func(Segment) bool) bool {
	if n.leaf() {
		return yield(n.part(0, len(n.entries)))
	}
	for _, c := range n.children {
		if !c.all(yield) {
			return false
		}
	}
	return true
}

// from is all for the keys from key on.
func (t tree) from(key keepwatch.Key, yield func(Segment) bool) {
	if t.root != nil {
		t.root.from(key, yield)
	}
}

func (n *node) from(key keepwatch.Key, yield func(Segment) bool) bool {
	if n.leaf() {
		i, _ := n.keys.find(key)
		return i == len(n.entries) || yield(n.part(i, len(n.entries)))
	}
	i := n.child(key)
	if !n.children[i].from(key, yield) {
		return false
	}
	for _, c := range n.children[i+1:] {
		if !c.all(yield) {
			return false
		}
	}
	return true
}

// namespace is all for the keys of a namespace.
func (t tree) namespace(namespace string, yield func(Segment) bool) {
	t.from(keepwatch.Key{Namespace: namespace}, func(s Segment) bool {
		keys := s.keys()
		if keys[len(keys)-1].Namespace == namespace {
			return yield(s)
		}
		// The namespace ends here: a search for where, since a segment may hold many.
		n := sort.Search(len(keys), func(i int) bool { return keys[i].Namespace != namespace })
		if n > 0 {
			yield(s.Part(0, n))
		}
		return false
	})
}

// first is the lowest key.
func (t tree) first() (key keepwatch.Key, ok bool) {
	if t.root == nil {
		return keepwatch.Key{}, false
	}
	return t.root.low(), true
}

// beyond is the first key after those of a namespace. It does not look at all of
// them, unless their names begin with no character.
func (t tree) beyond(namespace string) (key keepwatch.Key, ok bool) {
	t.from(keepwatch.Key{Namespace: namespace, Name: "\xff"}, func(s Segment) bool {
		for _, k := range s.keys() {
			if k.Namespace != namespace {
				key, ok = k, true
				return false
			}
		}
		return true
	})
	return key, ok
}

// newer calls yield for the entries of a namespace, or of all for "", that were
// stored after r, in order. It skips subtrees without any.
func (n *node) newer(r keepwatch.Revision, namespace string, yield func(*entry)) {
	if n == nil || n.newest <= r {
		return
	}
	first := 0
	if namespace != "" {
		first = n.child(keepwatch.Key{Namespace: namespace})
	}
	for i := first; i < len(n.keys.list); i++ {
		elsewhere := namespace != "" && n.keys.list[i].Namespace != namespace
		switch {
		case elsewhere && i > first:
			return
		case !n.leaf():
			n.children[i].newer(r, namespace, yield)
		case !elsewhere && n.entries[i].stored > r:
			yield(n.entries[i])
		}
	}
}
