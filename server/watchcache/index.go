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
func (f *family) indexed(key keepwatch.Key, decoded runtime.Object) [][]string {
	if len(f.indexes) == 0 {
		return nil
	}
	all := make([][]string, len(f.indexes))
	for i, x := range f.indexes {
		values, err := x.index(decoded)
		if err != nil {
			values = []string{unread}
		}
		all[i] = f.interner.texts(key, values)
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

// indexedBy returns the values under which an index finds the object.
func (o *Object) indexedBy(i int) []string {
	return o.judged(func(c *content) []string { return c.indexed[i] })
}

// judged returns the values that an object has in an index, as of its content. If the object could not be
// decoded when the store indexed it before, unread remains one of them, so that a write removes that
// entry, too. It does not try a failed decoding again, since the store's writer calls it.
func (o *Object) judged(values func(*content) []string) []string {
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
		return append(slices.Clip(values(c)), unread)
	}
	return values(c)
}

// byIndex iterates over the objects of a scope from a path on that have a value or may have it, in key order.
func (c *Cache) byIndex(index store.Index, value string, s scope, start string) iter.Seq[keepwatch.Object] {
	objects := s.indexed(index, value, start)
	doubtful := slices.Collect(s.indexed(index, unread, start))
	if len(doubtful) == 0 {
		return objects
	}
	c.reindex(doubtful)
	all := slices.AppendSeq(doubtful, objects)
	slices.SortFunc(all, func(a, b keepwatch.Object) int { return a.Key().Compare(b.Key()) })
	return slices.Values(slices.Compact(all))
}

// indexed iterates over the objects of a scope from a path on that an index finds by a value, in key order.
func (s scope) indexed(index store.Index, value, start string) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for part := range s.parts(start) {
			for o := range index.ObjectsFrom(value, part.from(start)) {
				if !part.covers(o.Key()) {
					break
				}
				if !yield(o) {
					return
				}
			}
		}
	}
}

// countIndexed returns how many objects indexed would find. It visits none of them.
func (s scope) countIndexed(index store.Index, value, start string) (n int) {
	for part := range s.parts(start) {
		n += index.CountFrom(value, part.from(start), part.covers)
	}
	return n
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
		if !cached.content.Load().doubtful() {
			again = append(again, o)
		}
	}
	if len(again) > 0 {
		c.store.Reindex(again, unread)
	}
}

// doubtful reports whether a decoded content has unread among its values: because an index function failed, or because
// the object has this very value.
func (c *content) doubtful() bool {
	has := func(values []string) bool { return slices.Contains(values, unread) }
	return slices.ContainsFunc(c.indexed, has) || has(c.labels.values) || has(c.fields.values)
}
