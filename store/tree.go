package store

import (
	"sort"

	"github.com/keepwatch/keepwatch"
)

// fill bounds the entries of a segment, and fanout the children of an inner node. A write
// copies one segment and one node of each level: with these bounds both the copies and the
// height of the tree are small.
const (
	fill   = 32
	fanout = 16
)

// maxHeight bounds the levels of a tree: with a quarter of the fanout at each level that
// is more objects than fit into memory.
const maxHeight = 20

// entry is one object in the tree. It is immutable.
type entry struct {
	object keepwatch.Object
	// created is the revision at which the store received this UID, and stored the one at
	// which it received this state: the revision of the change, or of the list. The object's
	// own revision may be lower than that of the list and must not be used instead: a list
	// may contain objects that the history lacked.
	created, stored keepwatch.Revision
}

// node is a subtree: a segment of entries, or an inner node.
//
// Invariants, for every node that is reachable from a published tree: it is
// immutable; exactly one of entries and children is non-empty, and keys is as long;
// all segments have the same depth; every node but those on the right edge of the
// tree is at least a quarter full.
type node struct {
	keys *keys // of the entries, or the lowest below each child
	// memos are the values that were derived from a segment since it was published.
	memos    memos
	entries  []*entry
	children []*node
	count    int // entries below
	// newest is at least the highest stored revision below. It may be too high after a
	// removal; a search for newer objects then visits the node in vain.
	newest keepwatch.Revision
	// owner is the number of the editor that made the node and may still change it.
	owner uint64
}

func (n *node) leaf() bool { return n.children == nil }

// room returns how many entries or children the node may have.
func (n *node) room() int {
	if n.leaf() {
		return fill
	}
	return fanout
}

// low returns the lowest key below.
func (n *node) low() keepwatch.Key { return n.keys.list[0] }

// high returns the highest key below.
func (n *node) high() keepwatch.Key {
	for !n.leaf() {
		n = n.children[len(n.children)-1]
	}
	return n.keys.list[len(n.keys.list)-1]
}

// child returns the index of the child that has key or would have it.
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

// position is the position of a key in a tree, whether the tree has it or not.
type position struct {
	*entry                  // nil if the key is not there
	steps  [maxHeight]uint8 // the child at each level, and the index in the segment
}

// seek returns the position of a key. It guesses first, which reads fewer strings if the
// tree has the key, as it mostly does.
func (t tree) seek(key keepwatch.Key) position {
	if p := t.descend(key, (*keys).guess); p.entry != nil {
		return p
	}
	return t.descend(key, (*keys).find)
}

func (t tree) descend(key keepwatch.Key, find func(*keys, keepwatch.Key) (int, bool)) position {
	var p position
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

// get returns the entry of a key, nil if there is none.
func (t tree) get(key keepwatch.Key) *entry { return t.seek(key).entry }

// leaf returns the segment that has a key or would have it, nil in an empty tree.
func (t tree) leaf(key keepwatch.Key) *node {
	n := t.root
	for n != nil && !n.leaf() {
		n = n.children[n.child(key)]
	}
	return n
}

// finger finds entries of rising keys. It starts at the segment of the last one.
type finger struct {
	tree tree
	leaf *node // nil before the first
}

// get returns the entry of a key, nil if there is none.
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

// rank returns the number of lower keys, and whether the tree has the key.
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

// count returns the number of keys from one on for which within is true: a prefix of those keys. It visits two paths.
func (t tree) count(from keepwatch.Key, within func(keepwatch.Key) bool) int {
	lower, _ := t.rank(from)
	return t.prefix(func(k keepwatch.Key) bool { return k.Compare(from) < 0 || within(k) }) - lower
}

// prefix returns the number of keys for which within is true: a prefix of all keys.
func (t tree) prefix(within func(keepwatch.Key) bool) (n int) {
	for at := t.root; at != nil; {
		i := sort.Search(len(at.keys.list), func(i int) bool { return !within(at.keys.list[i]) })
		if at.leaf() {
			return n + i
		}
		if i == 0 {
			return n // only at the root: its lowest key is not within
		}
		for _, c := range at.children[:i-1] {
			n += c.count
		}
		at = at.children[i-1]
	}
	return n
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

// from calls yield for the segments of the keys from key on, until it returns false.
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

// namespace calls yield for the segments of a namespace's keys, until it returns false.
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

// first returns the lowest key.
func (t tree) first() (key keepwatch.Key, ok bool) {
	if t.root == nil {
		return keepwatch.Key{}, false
	}
	return t.root.low(), true
}

// beyond returns the first key after those of a namespace, without visiting all of them.
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
