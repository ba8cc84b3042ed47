package storage

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// index is one of the API server's. Its function is asked once for each state of an
// object, which keeps the answer.
type index struct {
	name  string
	index cache.IndexFunc
}

// indexesOf puts indexers in an order.
func indexesOf(indexers *cache.Indexers) (ordered []index) {
	if indexers == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(*indexers)) {
		ordered = append(ordered, index{name, (*indexers)[name]})
	}
	return ordered
}

// unread is the value under which each index finds the objects that could not be read
// when it asked: a list by a value must not miss them.
const unread = "\x00unread"

// indexed is under which values each index finds an object.
func (s *Storage) indexed(key keepwatch.Key, decoded runtime.Object) [][]string {
	if len(s.indexes) == 0 {
		return nil
	}
	all := make([][]string, len(s.indexes))
	for i, x := range s.indexes {
		values, err := x.index(decoded)
		if err != nil {
			values = []string{unread}
		}
		all[i] = s.interner.texts(key, values)
	}
	return all
}

// functions are the indexes as the store's.
func (s *Storage) functions() map[string]store.IndexFunc {
	functions := make(map[string]store.IndexFunc, len(s.indexes))
	for i, x := range s.indexes {
		functions[x.name] = func(o keepwatch.Object) []string {
			if known, ok := o.(*Object); ok {
				return known.indexedBy(i)
			}
			return []string{unread}
		}
	}
	return functions
}

// indexedBy is under which values an index finds the object. For one that could not be
// read when an index asked, unread remains one of them, so that a write takes that back,
// too. A failed read is not tried again here, since the store's writer calls this.
func (o *Object) indexedBy(i int) []string {
	c := o.content.Load()
	if c.form == sealed && c.failed == nil {
		_, _ = o.open(true)
		c = o.content.Load()
	}
	if c.form == sealed {
		o.unindexed.Store(true)
		return []string{unread}
	}
	if o.unindexed.Load() {
		return append(slices.Clip(c.indexed[i]), unread)
	}
	return c.indexed[i]
}

// byIndex are the objects of a scope that have a value or may have it, in key order.
func (s *Storage) byIndex(index store.Index, value string, c scope) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		objects := index.Objects(value)
		if doubtful := covered(c, index.Objects(unread)); len(doubtful) > 0 {
			s.reindex(doubtful)
			all := append(covered(c, objects), doubtful...)
			slices.SortFunc(all, func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
			objects = slices.Values(slices.Compact(all))
		}
		for o := range objects {
			if c.covers(o.Key()) && !yield(o) {
				return
			}
		}
	}
}

func covered(c scope, objects iter.Seq[keepwatch.Object]) (in []keepwatch.Object) {
	for o := range objects {
		if c.covers(o.Key()) {
			in = append(in, o)
		}
	}
	return in
}

// reindex makes the indexes find objects that can be read by now by their values. It
// stops at the first that can't be: the list that asks for them fails.
func (s *Storage) reindex(objects []keepwatch.Object) {
	var again []keepwatch.Object
	for _, o := range objects {
		known, err := s.Read(o)
		if err != nil {
			break
		}
		unknown := func(values []string) bool { return slices.Contains(values, unread) } // an index function failed
		if !slices.ContainsFunc(known.content.Load().indexed, unknown) {
			again = append(again, o)
		}
	}
	if len(again) > 0 {
		s.store.Reindex(again, unread)
	}
}
