package watchcache

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// filter returns the store's filter for a watch, and whether it depends on keys only. Any other
// filter reads the objects. An object that can't be decoded neither matches nor fails to match:
// the watch ends.
func (c *Cache) filter(s scope, by *predicate) (f store.Filter, byKey bool) {
	namespace, single := s.single()
	switch {
	case s.within != nil:
		return c.covering(s, by), false
	case single:
		f.Namespace = namespace
	case !s.recursive:
		key := keyOf(s.path)
		f.Namespace, f.Name = key.Namespace, key.Name
	case s.path != "": // no API server asks for it
		return c.covering(s, by), false
	}
	if names, ok := named(by, f); ok {
		return names, true
	}
	return c.selecting(f, by), false
}

// covering returns the filter of a scope that is not one namespace, nor one object. It reads no object outside.
func (c *Cache) covering(s scope, by *predicate) store.Filter {
	f := c.selecting(store.Filter{}, by)
	readable, match := f.Readable, f.Match
	f.Readable = func(o keepwatch.Object) error {
		if !s.covers(o.Key()) {
			return nil
		}
		return readable(o)
	}
	f.Match = func(o keepwatch.Object) bool { return s.covers(o.Key()) && match(o) }
	return f
}

// selecting adds to a filter that a predicate must select an object.
func (c *Cache) selecting(f store.Filter, by *predicate) store.Filter {
	f.Readable = func(o keepwatch.Object) error { _, err := c.Read(o); return err }
	f.Match = func(o keepwatch.Object) bool { return c.watched(o.(*Object), by) }
	if by.shard == nil { // the metrics count the objects of other shards
		f.Term = by.term()
	}
	return f
}

// named adds to a filter the names that a predicate requires, if the predicate requires nothing
// else and does not contradict the filter.
func named(by *predicate, f store.Filter) (store.Filter, bool) {
	if by.shard != nil || !by.Label.Empty() {
		return f, false
	}
	for _, r := range by.Field.Requirements() {
		var named *string
		switch r.Field {
		case "metadata.name":
			named = &f.Name
		case "metadata.namespace":
			named = &f.Namespace
		}
		if named == nil || !isEquals(r) || r.Value == "" || *named != "" && *named != r.Value {
			return f, false
		}
		*named = r.Value
	}
	return f, true
}

func isEquals(r fields.Requirement) bool {
	return r.Operator == selection.Equals || r.Operator == selection.DoubleEquals
}
