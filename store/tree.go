package store

import (
	"slices"
	"sort"

	"github.com/keepwatch/keepwatch"
)

// fanout bounds the entries of a segment and the children of a node. A write
// copies one segment and one node a level: some dozens keep both the copies and
// the tree's height small (three levels hold 262,144 objects).
const fanout = 64

// entry is one object in the tree.
type entry struct {
	key    keepwatch.Key
	object keepwatch.Object
	// created is the revision at which this UID entered the store: exact when it
	// came as a change, an upper bound when it came with a list.
	created keepwatch.Revision
}

// node is a subtree: a segment of entries, or an inner node.
//
// Invariants, for every node that is reachable from a published tree: it never
// changes; exactly one of entries and children is non-empty; all segments have
// the same depth; entries are in key order, each key once.
type node struct {
	entries  []entry
	children []*node
	low      keepwatch.Key // the lowest key below
	count    int           // entries below
	// newest is at least the highest object revision below. It may be too high
	// after a removal; then a search for newer objects looks here in vain.
	newest keepwatch.Revision
	// owner is the editor that made the node and may still change it.
	owner *editor
}

func (n *node) leaf() bool { return n.children == nil }

// high is the highest key below.
func (n *node) high() keepwatch.Key {
	for !n.leaf() {
		n = n.children[len(n.children)-1]
	}
	return n.entries[len(n.entries)-1].key
}

// find is the place of key among a segment's entries.
func (n *node) find(key keepwatch.Key) (int, bool) {
	return slices.BinarySearchFunc(n.entries, key, func(e entry, k keepwatch.Key) int { return e.key.Compare(k) })
}

// child is the place of the child that holds key or would.
func (n *node) child(key keepwatch.Key) int {
	above := sort.Search(len(n.children), func(i int) bool { return n.children[i].low.Compare(key) > 0 })
	return max(0, above-1)
}

// tree is an immutable ordered map from key to entry. The zero value is empty.
type tree struct{ root *node }

func (t tree) len() int {
	if t.root == nil {
		return 0
	}
	return t.root.count
}

// get finds an entry, and its rank: how many keys are lower.
func (t tree) get(key keepwatch.Key) (e entry, rank int, ok bool) {
	n := t.root
	if n == nil {
		return entry{}, 0, false
	}
	for !n.leaf() {
		i := n.child(key)
		for _, c := range n.children[:i] {
			rank += c.count
		}
		n = n.children[i]
	}
	i, ok := n.find(key)
	if !ok {
		return entry{}, rank + i, false
	}
	return n.entries[i], rank + i, true
}

// from calls yield for the entries from key on, in order, until it returns false.
func (n *node) from(key keepwatch.Key, yield func(entry) bool) bool {
	if n.leaf() {
		i, _ := n.find(key)
		for _, e := range n.entries[i:] {
			if !yield(e) {
				return false
			}
		}
		return true
	}
	for _, c := range n.children[n.child(key):] {
		if !c.from(key, yield) {
			return false
		}
	}
	return true
}

// from calls yield for the entries from key on, in order, until it returns false.
func (t tree) from(key keepwatch.Key, yield func(entry) bool) {
	if t.root != nil {
		t.root.from(key, yield)
	}
}

// newer calls yield for the entries whose object is newer than r, in order. It
// skips subtrees without any.
func (n *node) newer(r keepwatch.Revision, yield func(entry)) {
	if n == nil || n.newest <= r {
		return
	}
	for _, c := range n.children {
		c.newer(r, yield)
	}
	for _, e := range n.entries {
		if e.object.Revision() > r {
			yield(e)
		}
	}
}
