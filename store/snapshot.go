package store

import (
	"iter"

	"github.com/keepwatch/keepwatch"
)

// Snapshot is one resource's state at one revision. It is immutable and safe for concurrent
// use. It keeps only the objects alive that were replaced since.
type Snapshot struct {
	tree     tree
	indexes  indexes // of tree
	epoch    uint64
	revision keepwatch.Revision
	digest   digest
}

// Revision returns the revision of the state, zero before the first list.
func (s *Snapshot) Revision() keepwatch.Revision { return s.revision }

// Cursor returns the snapshot's position in the store's history. A watcher from there
// receives the changes after the snapshot.
func (s *Snapshot) Cursor() Cursor { return Cursor{Epoch: s.epoch, Revision: s.revision} }

// Len returns the number of objects.
func (s *Snapshot) Len() int { return s.tree.len() }

// Digest returns a hash that is equal for two snapshots of equal content: the same keys with
// the same UIDs and revisions. It does not resist an adversary.
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

// Namespace iterates over a namespace's objects in key order, without reading those of
// other namespaces.
func (s *Snapshot) Namespace(namespace string) iter.Seq[keepwatch.Object] {
	return objects(s.SegmentsIn(namespace))
}

// Segments iterates over the segments in key order.
func (s *Snapshot) Segments() iter.Seq[Segment] { return s.tree.all }

// SegmentsFrom iterates over the segments of the objects from a key on.
func (s *Snapshot) SegmentsFrom(key keepwatch.Key) iter.Seq[Segment] {
	return func(yield func(Segment) bool) { s.tree.from(key, yield) }
}

// SegmentsIn iterates over the segments of a namespace's objects.
func (s *Snapshot) SegmentsIn(namespace string) iter.Seq[Segment] {
	return func(yield func(Segment) bool) { s.tree.namespace(namespace, yield) }
}

// CountFrom returns the number of objects from a key on for whose keys within is true, in O(log n). within must be true
// for a prefix of these keys.
func (s *Snapshot) CountFrom(key keepwatch.Key, within func(keepwatch.Key) bool) int {
	return s.tree.count(key, within)
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

// Diff returns the changes from s to later in key order, in O(changes · log n). A UID that
// was replaced is Deleted and Added. Prior is set. The revision of Deleted is later's.
func (s *Snapshot) Diff(later *Snapshot) []keepwatch.Change {
	var changes []keepwatch.Change
	diff(s.tree, later.tree, func(before, after *entry) {
		changes = append(changes, between(before, after, later.revision)...)
	})
	return changes
}

// With returns a state at another revision of s's epoch: s without the objects of removed keys, and with those of put.
// It shares with s what is equal, and has no indexes. No object of it is newer than the revision. An object counts as
// stored at its own revision, since a store that begins with the state has no history before it.
func (s *Snapshot) With(revision keepwatch.Revision, removed []keepwatch.Key, put []keepwatch.Object) *Snapshot {
	t := newTxn(&view{snapshot: s}, revision)
	for _, key := range removed {
		if p := t.seek(key); p.entry != nil {
			t.removeObject(p)
		}
	}
	for _, o := range put {
		t.putObject(t.seek(o.Key()), nil, o, min(o.Revision(), revision))
	}
	return t.snapshot()
}

// between returns the changes from one entry to another of the same key, either of which
// may be nil.
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

// removed returns a deletion; last is the final state, which may be newer than prior.
func removed(prior, last keepwatch.Object, at keepwatch.Revision) keepwatch.Change {
	return keepwatch.Change{Type: keepwatch.Deleted, Revision: at, Object: last, Prior: prior}
}
