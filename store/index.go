package store

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch"
)

// IndexFunc gives the values under which an index finds an object: none, one or
// several. It must answer the same for the same object, always, but for what
// [Store.Reindex] says. A store calls it
// while it takes a change, for the state before and the one after; if it panics,
// so does whoever wrote, and the store stays as it was.
type IndexFunc func(keepwatch.Object) []string

// index finds keys by value. It is as immutable as the tree, and a part of the
// same snapshot. It has keys and not objects: so a write that changes none of its
// object's values does not touch it.
type index struct {
	name   string
	values IndexFunc
	// postings has for each value of each object a key that joins the two, see post.
	// What its entries hold means nothing.
	postings tree
}

// posted is the entry of every posting.
var posted = new(entry)

// post is the key of a posting: the value is its namespace and the object's key its
// name. So the postings of a value lie together, in the order of their objects.
func post(value string, key keepwatch.Key) keepwatch.Key {
	return keepwatch.Key{Namespace: fence(value), Name: key.Namespace + "/" + key.Name}
}

// posts is what a posting finds.
func posts(posting keepwatch.Key) keepwatch.Key {
	namespace, name, _ := strings.Cut(posting.Name, "/")
	return keepwatch.Key{Namespace: namespace, Name: name}
}

var (
	fencer   = strings.NewReplacer("\x01", "\x01\x01", "/", "\x01\x02")
	unfencer = strings.NewReplacer("\x01\x01", "\x01", "\x01\x02", "/")
)

// fence spells a value without a slash, as a namespace must be, and unfence reads
// that; most values are spelt as they are.
func fence(value string) string   { return fencer.Replace(value) }
func unfence(value string) string { return unfencer.Replace(value) }

// move makes the postings of a key, which are being edited, those of its next
// state; before or after may be nil.
func (x *index) move(ed *editor, before, after keepwatch.Object) {
	var old, now []string
	if before != nil {
		old = x.values(before)
	}
	if after != nil {
		now = x.values(after)
	}
	if before != nil || after != nil {
		repost(ed, keyOf(before, after), old, now)
	}
}

// keyOf is the key of two states of an object, either of which may be nil.
func keyOf(before, after keepwatch.Object) keepwatch.Key {
	if after == nil {
		return before.Key()
	}
	return after.Key()
}

// repost replaces the postings of a key's old values by those of its values now.
func repost(ed *editor, key keepwatch.Key, old, now []string) {
	for _, value := range old {
		if !slices.Contains(now, value) {
			if p := ed.seek(post(value, key)); p.entry != nil {
				ed.remove(p)
			}
		}
	}
	for _, value := range now {
		if !slices.Contains(old, value) {
			posting := post(value, key)
			if p := ed.seek(posting); p.entry == nil {
				ed.put(p, posting, posted)
			}
		}
	}
}

// indexes are those of a snapshot. They never change.
type indexes []index

// namedIndexes makes empty indexes, in the order of their names.
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

// of is what the indexes are over a tree, whatever they are now.
func (xs indexes) of(t tree) indexes {
	return xs.edited(func(x *index, _ editor) tree {
		ed := tree{}.edit()
		t.all(func(s Segment) bool {
			for _, e := range s.entries() {
				x.move(&ed, nil, e.object)
			}
			return true
		})
		return ed.publish()
	})
}

// after is the indexes after changes, which know what was before.
func (xs indexes) after(changes []keepwatch.Change) indexes {
	return xs.edited(func(x *index, ed editor) tree {
		for _, c := range changes {
			if c.Type == keepwatch.Deleted {
				x.move(&ed, c.Prior, nil)
			} else {
				x.move(&ed, c.Prior, c.Object)
			}
		}
		return ed.publish()
	})
}

// edited is the indexes with other postings.
func (xs indexes) edited(edit func(*index, editor) tree) indexes {
	next := slices.Clone(xs)
	for i := range next {
		next[i].postings = edit(&next[i], next[i].postings.edit())
	}
	return next
}

// AddIndexes adds indexes by their names, at any time: every snapshot from then on
// has them, and they are true of it. It fails if there is one of the same name
// already, and then adds none. The writer waits only while what has changed since
// the call began is indexed.
func (s *Store) AddIndexes(functions map[string]IndexFunc) error {
	base := s.Snapshot()
	if err := base.indexes.free(functions); err != nil {
		return err
	}
	added := namedIndexes(functions).of(base.tree)
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	now := *next.snapshot
	if err := now.indexes.free(functions); err != nil {
		return err
	}
	now.indexes = slices.Concat(now.indexes, added.after(base.Diff(&now)))
	next.snapshot = &now
	s.view.Store(&next)
	return nil
}

// free fails if a name is taken.
func (xs indexes) free(functions map[string]IndexFunc) error {
	for _, x := range xs {
		if _, taken := functions[x.name]; taken {
			return fmt.Errorf("there is an index %q already", x.name)
		}
	}
	return nil
}

// Reindex asks the index functions again about objects for which they had no answer but
// unknown, a value that says so. Each object that is still in the store is found under
// their other values from then on, and not under unknown. In earlier snapshots it may be
// found under either or both.
func (s *Store) Reindex(objects []keepwatch.Object, unknown string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	next := *s.view.Load()
	now := *next.snapshot
	now.indexes = now.indexes.edited(func(x *index, ed editor) tree {
		for _, o := range objects {
			if e := now.tree.get(o.Key()); e != nil && e.object == o {
				known := slices.DeleteFunc(slices.Clone(x.values(o)), func(value string) bool { return value == unknown })
				repost(&ed, o.Key(), []string{unknown}, known)
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

// Index finds an index by its name, if the store had it when the snapshot was made.
func (s *Snapshot) Index(name string) (Index, bool) {
	x := s.indexes.find(name)
	return Index{x, s}, x != nil
}

// Of is the values under which the index finds an object, or would if it were in
// the snapshot: what the index function says.
func (x Index) Of(o keepwatch.Object) []string { return x.values(o) }

// Keys iterates over the keys of the objects with a value, in order.
func (x Index) Keys(value string) iter.Seq[keepwatch.Key] {
	return func(yield func(keepwatch.Key) bool) {
		x.postings.namespace(fence(value), func(s Segment) bool {
			for _, posting := range s.keys() {
				if !yield(posts(posting)) {
					return false
				}
			}
			return true
		})
	}
}

// Objects iterates over the objects with a value, in key order.
func (x Index) Objects(value string) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		at := finger{tree: x.snapshot.tree}
		for key := range x.Keys(value) {
			// It is there, unless the index function does not keep its word.
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
			if !yield(unfence(posting.Namespace)) {
				return
			}
		}
	}
}
