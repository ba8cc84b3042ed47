package store

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch"
)

// IndexFunc returns the values under which an index finds an object: none, one or
// several. It must always return the same for the same object, except as described at
// [Store.Reindex]. A store calls it while it applies a change, for the prior and the new
// state; if it panics, so does the write, and the store is unchanged.
type IndexFunc func(keepwatch.Object) []string

// index finds keys by value. It is immutable, as the tree is, and part of the same
// snapshot. It has keys instead of objects, so that a write that leaves its object's values
// unchanged does not change it.
type index struct {
	name   string
	values IndexFunc
	// postings has a key for each value of each object, see postingKey. Its entries have no
	// meaning.
	postings tree
}

// postingEntry is the entry of every posting.
var postingEntry = new(entry)

// postingKey returns the key of a posting: the value is its namespace and the object's key
// its name. So the postings of a value are adjacent, in the order of their objects.
func postingKey(value string, key keepwatch.Key) keepwatch.Key {
	return keepwatch.Key{Namespace: escape(value), Name: key.Namespace + "/" + key.Name}
}

// postedKey returns the object's key of a posting.
func postedKey(posting keepwatch.Key) keepwatch.Key {
	namespace, name, _ := strings.Cut(posting.Name, "/")
	return keepwatch.Key{Namespace: namespace, Name: name}
}

var (
	escaper   = strings.NewReplacer("\x01", "\x01\x01", "/", "\x01\x02")
	unescaper = strings.NewReplacer("\x01\x01", "\x01", "\x01\x02", "/")
)

// escape returns a value without slashes, since a namespace must not have any; unescape
// reverts it. Most values are their own escape.
func escape(value string) string   { return escaper.Replace(value) }
func unescape(value string) string { return unescaper.Replace(value) }

// update replaces the postings of an object's state by those of its next state. Either
// state may be nil.
func (x *index) update(ed *editor, before, after keepwatch.Object) {
	var old, now []string
	if before != nil {
		old = x.values(before)
	}
	if after != nil {
		now = x.values(after)
	}
	if before != nil || after != nil {
		replacePostings(ed, keyOf(before, after), old, now)
	}
}

// keyOf returns the key of two states of an object, either of which may be nil.
func keyOf(before, after keepwatch.Object) keepwatch.Key {
	if after == nil {
		return before.Key()
	}
	return after.Key()
}

// replacePostings replaces the postings of a key's old values by those of its current ones. old may have values without
// a posting: an index function that could not judge the state before can judge it now.
func replacePostings(ed *editor, key keepwatch.Key, old, now []string) {
	if slices.Equal(old, now) {
		return
	}
	for _, value := range old {
		if !slices.Contains(now, value) {
			if p := ed.seek(postingKey(value, key)); p.entry != nil {
				ed.remove(p)
			}
		}
	}
	for _, value := range now {
		posting := postingKey(value, key)
		if p := ed.seek(posting); p.entry == nil {
			ed.put(p, posting, postingEntry)
		}
	}
}

// indexes are those of a snapshot. They are immutable.
type indexes []index

// namedIndexes returns empty indexes in the order of their names.
func namedIndexes(functions map[string]IndexFunc) indexes {
	var made indexes
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		made = append(made, index{name: name, values: functions[name]})
	}
	return made
}

func (xs indexes) find(name string) *index {
	for i := range xs {
		if xs[i].name == name {
			return &xs[i]
		}
	}
	return nil
}

// over returns the indexes of a tree.
func (xs indexes) over(t tree) indexes {
	return xs.edited(func(x *index, _ editor) tree {
		found := map[string][]keepwatch.Key{}
		t.all(func(s Segment) bool {
			for _, e := range s.entries() {
				for _, value := range x.values(e.object) {
					found[value] = append(found[value], e.object.Key())
				}
			}
			return true
		})
		return postingsOf(found)
	})
}

// postingsOf returns the postings of the keys that were found by value, each in order and possibly more than once. They
// are put in order, which leaves full segments.
func postingsOf(found map[string][]keepwatch.Key) tree {
	ed := tree{}.edit()
	byPosting := func(a, b string) int {
		return keepwatch.Key{Namespace: escape(a)}.Compare(keepwatch.Key{Namespace: escape(b)})
	}
	for _, value := range slices.SortedFunc(maps.Keys(found), byPosting) {
		for _, key := range slices.Compact(found[value]) {
			posting := postingKey(value, key)
			ed.put(ed.seek(posting), posting, postingEntry)
		}
	}
	return ed.publish()
}

// after returns the indexes after changes, whose prior states must be set.
func (xs indexes) after(changes []keepwatch.Change) indexes {
	return xs.edited(func(x *index, ed editor) tree {
		for _, c := range changes {
			if c.Type == keepwatch.Deleted {
				x.update(&ed, c.Prior, nil)
			} else {
				x.update(&ed, c.Prior, c.Object)
			}
		}
		return ed.publish()
	})
}

// edited returns the indexes with edited postings.
func (xs indexes) edited(edit func(*index, editor) tree) indexes {
	next := slices.Clone(xs)
	for i := range next {
		next[i].postings = edit(&next[i], next[i].postings.edit())
	}
	return next
}

// AddIndexes adds indexes by name. Every later snapshot has them. It fails if one of the
// names is in use, and adds none then. It blocks the writer only while it indexes the
// changes since the call began.
func (s *Store) AddIndexes(functions map[string]IndexFunc) error {
	base := s.Snapshot()
	if err := base.indexes.checkNames(functions); err != nil {
		return err
	}
	added := namedIndexes(functions).over(base.tree)
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	now := *next.snapshot
	if err := now.indexes.checkNames(functions); err != nil {
		return err
	}
	now.indexes = slices.Concat(now.indexes, added.after(base.Diff(&now)))
	next.snapshot = &now
	s.view.Store(&next)
	s.past.clear() // they lack the indexes
	return nil
}

// RemoveIndex removes an index by name: later snapshots do not have it.
func (s *Store) RemoveIndex(name string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	now := *next.snapshot
	now.indexes = slices.DeleteFunc(slices.Clone(now.indexes), func(x index) bool { return x.name == name })
	next.snapshot = &now
	s.view.Store(&next)
	s.past.clear() // they keep its memory
}

// checkNames fails if a name is in use.
func (xs indexes) checkNames(functions map[string]IndexFunc) error {
	for _, x := range xs {
		if _, taken := functions[x.name]; taken {
			return fmt.Errorf("there is an index %q already", x.name)
		}
	}
	return nil
}

// Reindex calls the index functions again for objects for which they returned unknown, a
// value which says that they cannot judge the object. Later snapshots have the objects that
// are still in the store under their other values, and not under unknown. Earlier snapshots
// may have them under either or both.
func (s *Store) Reindex(objects []keepwatch.Object, unknown string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	now := *next.snapshot
	now.indexes = now.indexes.edited(func(x *index, ed editor) tree {
		for _, o := range objects {
			if e := now.tree.get(o.Key()); e != nil && e.object == o {
				known := slices.DeleteFunc(slices.Clone(x.values(o)), func(value string) bool { return value == unknown })
				replacePostings(&ed, o.Key(), []string{unknown}, known)
			}
		}
		return ed.publish()
	})
	next.snapshot = &now
	s.view.Store(&next)
}

// Index is an index of a snapshot.
type Index struct {
	*index
	snapshot *Snapshot
}

// Index returns the index of a name, if the store had it when the snapshot was published.
func (s *Snapshot) Index(name string) (Index, bool) {
	x := s.indexes.find(name)
	return Index{x, s}, x != nil
}

// Of returns the values under which the index finds an object, or would if it were in the
// snapshot.
func (x Index) Of(o keepwatch.Object) []string { return x.values(o) }

// Len returns the number of values of all objects together, each once an object.
func (x Index) Len() int { return x.postings.len() }

// Keys iterates over the keys of the objects with a value, in order.
func (x Index) Keys(value string) iter.Seq[keepwatch.Key] { return x.KeysFrom(value, keepwatch.Key{}) }

// KeysFrom iterates over the keys of the objects with a value from a key on, in order.
func (x Index) KeysFrom(value string, from keepwatch.Key) iter.Seq[keepwatch.Key] {
	return func(yield func(keepwatch.Key) bool) {
		first := postingKey(value, from)
		x.postings.from(first, func(s Segment) bool {
			for _, posting := range s.keys() {
				if posting.Namespace != first.Namespace || !yield(postedKey(posting)) {
					return false
				}
			}
			return true
		})
	}
}

// CountFrom returns the number of objects with a value from a key on for whose keys within is true, in O(log n). within
// must be true for a prefix of these keys.
func (x Index) CountFrom(value string, from keepwatch.Key, within func(keepwatch.Key) bool) int {
	first := postingKey(value, from)
	return x.postings.count(first, func(posting keepwatch.Key) bool {
		return posting.Namespace == first.Namespace && within(postedKey(posting))
	})
}

// Objects iterates over the objects with a value, in key order.
func (x Index) Objects(value string) iter.Seq[keepwatch.Object] {
	return x.ObjectsFrom(value, keepwatch.Key{})
}

// ObjectsFrom iterates over the objects with a value from a key on, in key order.
func (x Index) ObjectsFrom(value string, from keepwatch.Key) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		at := finger{tree: x.snapshot.tree}
		for key := range x.KeysFrom(value, from) {
			// The tree has it, unless the index function returned other values before.
			if e := at.get(key); e != nil && !yield(e.object) {
				return
			}
		}
	}
}

// Values iterates over the values that objects have, each once, in no order.
func (x Index) Values() iter.Seq[string] {
	return func(yield func(string) bool) {
		for posting, ok := x.postings.first(); ok; posting, ok = x.postings.beyond(posting.Namespace) {
			if !yield(unescape(posting.Namespace)) {
				return
			}
		}
	}
}
