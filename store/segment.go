package store

import (
	"iter"

	"github.com/keepwatch/keepwatch"
)

// Segment is a run of a snapshot's objects in key order, some dozens at most, or a part of
// one. It is immutable, and shared by all snapshots in which none of its objects differs;
// so values that are derived from it can be cached with it, see [Memo].
type Segment struct {
	node     *node
	from, to int
}

// part returns the segment of the entries [from, to) of a leaf.
func (n *node) part(from, to int) Segment { return Segment{n, from, to} }

func (s Segment) keys() []keepwatch.Key { return s.node.keys.list[s.from:s.to] }
func (s Segment) entries() []*entry     { return s.node.entries[s.from:s.to] }

// Len returns the number of objects, at least one except in an empty part.
func (s Segment) Len() int { return s.to - s.from }

// At returns the i-th object.
func (s Segment) At(i int) keepwatch.Object { return s.entries()[i].object }

// Key returns the key of the i-th object, without reading the object.
func (s Segment) Key(i int) keepwatch.Key { return s.keys()[i] }

// All iterates over the objects in key order.
func (s Segment) All() iter.Seq[keepwatch.Object] {
	return objects(func(yield func(Segment) bool) { yield(s) })
}

// Part returns the segment of the objects [from, to).
func (s Segment) Part(from, to int) Segment {
	if from < 0 || to < from || to > s.Len() {
		panic("store: a part reaches beyond its segment")
	}
	return s.node.part(s.from+from, s.from+to)
}

// Whole reports whether the segment is complete. The first and the last segment of a range
// may be parts.
func (s Segment) Whole() bool { return s.from == 0 && s.to == len(s.node.entries) }

// Join returns the segment of s and the objects that follow it, if next is the following part of the same run.
func (s Segment) Join(next Segment) (Segment, bool) {
	if s.node == nil || s.node != next.node || s.to != next.from {
		return Segment{}, false
	}
	return s.node.part(s.from, next.to), true
}
