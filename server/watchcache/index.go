package watchcache

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// index is one of Config.Indexers. Its function is called once for each state of an object, which
// stores the values.
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

// unread is the value under which each index finds the objects that could not be decoded when the store
// indexed them: a list by a value must not miss them.
const unread = "\x00unread"

// indexed returns the values under which each index finds an object.
func (c *Cache) indexed(key keepwatch.Key, decoded runtime.Object) [][]string {
	if len(c.indexes) == 0 {
		return nil
	}
	all := make([][]string, len(c.indexes))
	for i, x := range c.indexes {
		values, err := x.index(decoded)
		if err != nil {
			values = []string{unread}
		}
		all[i] = c.interner.texts(key, values)
	}
	return all
}

// indexFuncs returns the indexes as the store's.
func (c *Cache) indexFuncs() map[string]store.IndexFunc {
	functions := make(map[string]store.IndexFunc, len(c.indexes))
	for i, x := range c.indexes {
		functions[x.name] = func(o keepwatch.Object) []string {
			if cached, ok := o.(*Object); ok {
				return cached.indexedBy(i)
			}
			return []string{unread}
		}
	}
	return functions
}

// indexedBy returns the values under which an index finds the object. If the object could not be
// decoded when the store indexed it before, unread remains one of them, so that a write removes that
// entry, too. It does not try a failed decoding again, since the store's writer calls it.
func (o *Object) indexedBy(i int) []string {
	c := o.content.Load()
	if c.encoding == encoded && c.failed == nil {
		_, _ = o.decode(true)
		c = o.content.Load()
	}
	if c.encoding == encoded {
		o.unindexed.Store(true)
		return []string{unread}
	}
	if o.unindexed.Load() {
		return append(slices.Clip(c.indexed[i]), unread)
	}
	return c.indexed[i]
}

// byIndex iterates over the objects of a scope that have a value or may have it, in key order.
func (c *Cache) byIndex(index store.Index, value string, s scope) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		objects := index.Objects(value)
		if doubtful := covered(s, index.Objects(unread)); len(doubtful) > 0 {
			c.reindex(doubtful)
			all := append(covered(s, objects), doubtful...)
			slices.SortFunc(all, func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
			objects = slices.Values(slices.Compact(all))
		}
		for o := range objects {
			if s.covers(o.Key()) && !yield(o) {
				return
			}
		}
	}
}

func covered(s scope, objects iter.Seq[keepwatch.Object]) (in []keepwatch.Object) {
	for o := range objects {
		if s.covers(o.Key()) {
			in = append(in, o)
		}
	}
	return in
}

// reindex makes the indexes find objects that can be decoded now by their values. It stops at the
// first one that can't be: the list that needs it fails.
func (c *Cache) reindex(objects []keepwatch.Object) {
	var again []keepwatch.Object
	for _, o := range objects {
		cached, err := c.Read(o)
		if err != nil {
			break
		}
		unknown := func(values []string) bool { return slices.Contains(values, unread) } // an index function failed
		if !slices.ContainsFunc(cached.content.Load().indexed, unknown) {
			again = append(again, o)
		}
	}
	if len(again) > 0 {
		c.store.Reindex(again, unread)
	}
}
