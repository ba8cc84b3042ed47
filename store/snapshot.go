package store

import (
	"iter"

	"github.com/keepwatch/keepwatch"
)

// Snapshot is one resource's state at one revision. It never changes, costs
// nothing to hold but the objects that were replaced since, and may be used from
// any goroutine.
type Snapshot struct {
	tree     tree
	indexes  indexes // of tree
	epoch    uint64
	revision keepwatch.Revision
	digest   digest
}

// Revision is what the state is of; zero before the first list.
func (s *Snapshot) Revision() keepwatch.Revision { return s.revision }

// Cursor is the snapshot's place in the store's history: a watcher from there
// goes on with what happened next.
func (s *Snapshot) Cursor() Cursor { return Cursor{Epoch: s.epoch, Revision: s.revision} }

// Len is the number of objects.
func (s *Snapshot) Len() int { return s.tree.len() }

// Digest is equal for two snapshots of equal content: the same keys with the
// same UIDs and revisions. It is not proof against an adversary.
func (s *Snapshot) Digest() uint64 { return uint64(s.digest) }

// Get returns the object of a key, in O(log n).
func (s *Snapshot) Get(key keepwatch.Key) (keepwatch.Object, bool) {
	e := s.tree.get(key)
	if e == nil {
		return nil, false
	}
	return e.object, true
}

// All iterates over the objects in key order.
func (s *Snapshot) All() iter.Seq[keepwatch.Object] { return objects(s.tree.all) }

// From iterates over the objects from a key on, in key order.
func (s *Snapshot) From(key keepwatch.Key) iter.Seq[keepwatch.Object] {
	return objects(s.SegmentsFrom(key))
}

// Namespace iterates over a namespace's objects in key order; it does not look at
// the others.
func (s *Snapshot) Namespace(namespace string) iter.Seq[keepwatch.Object] {
	return objects(s.SegmentsIn(namespace))
}

// Segments iterates over the objects in key order, by the segment.
func (s *Snapshot) Segments() iter.Seq[Segment] { return s.tree.all }

// SegmentsFrom is From by the segment.
func (s *Snapshot) SegmentsFrom(key keepwatch.Key) iter.Seq[Segment] {
	return func(yield func(Segment) bool) { s.tree.from(key, yield) }
}

// SegmentsIn is Namespace by the segment.
func (s *Snapshot) SegmentsIn(namespace string) iter.Seq[Segment] {
	return func(yield func(Segment) bool) { s.tree.namespace(namespace, yield) }
}

func objects(segments iter.Seq[Segment]) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		segments(func(s Segment) bool {
			for _, e := range s.entries() {
				if !yield(e.object) {
					return false
				}
			}
			return true
		})
	}
}

// Diff is what turns s into later, in key order and O(changes · log n): a UID
// that was replaced comes as Deleted and Added. Prior is set. For Deleted the
// revision is later's.
func (s *Snapshot) Diff(later *Snapshot) []keepwatch.Change {
	var changes []keepwatch.Change
	diff(s.tree, later.tree, func(before, after *entry) {
		changes = append(changes, between(before, after, later.revision)...)
	})
	return changes
}

// between is the change from one entry to another of the same key, either of
// which may be nil.
func between(before, after *entry, deleted keepwatch.Revision) []keepwatch.Change {
	switch {
	case before == nil:
		return []keepwatch.Change{added(after.object)}
	case after == nil:
		return []keepwatch.Change{removed(before.object, before.object, deleted)}
	case before.object.UID() != after.object.UID():
		return []keepwatch.Change{removed(before.object, before.object, deleted), added(after.object)}
	}
	return []keepwatch.Change{modified(before.object, after.object)}
}

func added(o keepwatch.Object) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Added, Revision: o.Revision(), Object: o}
}

func modified(prior, o keepwatch.Object) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Modified, Revision: o.Revision(), Object: o, Prior: prior}
}

// removed is a deletion; last is the final state, which may be newer than prior.
func removed(prior, last keepwatch.Object, at keepwatch.Revision) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Deleted, Revision: at, Object: last, Prior: prior}
}
