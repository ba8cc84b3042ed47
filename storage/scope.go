package storage

import (
	"iter"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// scope is the keys that a request is about.
type scope struct {
	// key is the request's, in full: "/pods/default/" or "/pods/default/web".
	key string
	// path is what follows the resource's prefix. Invariant: if the scope is recursive
	// it is empty or ends in "/".
	path      string
	recursive bool
	// namespaced is Config.Namespaced.
	namespaced bool
}

// scope reads a request's key.
func (s *Storage) scope(key string, recursive bool) (scope, error) {
	prefix := strings.TrimSuffix(s.config.ResourcePrefix, "/") + "/"
	key, err := apistorage.PrepareKey(prefix, key, recursive)
	if err != nil {
		return scope{}, err
	}
	return scope{key, strings.TrimPrefix(key, prefix), recursive, s.config.Namespaced}, nil
}

// keyOf is the store's key for a path; see source/etcd.
func keyOf(path string) keepwatch.Key {
	namespace, name, ok := strings.Cut(path, "/")
	if !ok || namespace == "" || name == "" {
		return keepwatch.Key{Name: path}
	}
	return keepwatch.Key{Namespace: namespace, Name: name}
}

// single reports whether the scope is one namespace, which it returns.
func (c scope) single() (namespace string, ok bool) {
	namespace, below, _ := strings.Cut(c.path, "/")
	return namespace, c.recursive && namespace != "" && below == ""
}

// covers reports whether a key is in the scope.
func (c scope) covers(key keepwatch.Key) bool {
	if !c.recursive {
		return key == keyOf(c.path)
	}
	if namespace, ok := c.single(); ok {
		return key.Namespace == namespace
	}
	return c.path == "" || strings.HasPrefix(key.String(), c.path)
}

// first returns the first key of the scope in a snapshot, or the first from a path on: a
// page may begin in its middle.
func (c scope) first(start string) keepwatch.Key {
	start = max(start, c.path)
	if !c.namespaced { // a token may name a namespace all the same
		return keepwatch.Key{Name: start}
	}
	namespace, name, _ := strings.Cut(start, "/")
	return keepwatch.Key{Namespace: namespace, Name: name}
}

// segments are those of a snapshot's objects in the scope, in key order, from a path
// on.
func (c scope) segments(snapshot *store.Snapshot, start string) iter.Seq[store.Segment] {
	return func(yield func(store.Segment) bool) {
		for segment := range snapshot.SegmentsFrom(c.from(start)) {
			n := segment.Len()
			if c.covers(segment.At(n - 1).Key()) {
				if !yield(segment) {
					return
				}
				continue
			}
			covered := sort.Search(n, func(i int) bool { return !c.covers(segment.At(i).Key()) })
			if covered > 0 {
				yield(segment.Part(0, covered))
			}
			return
		}
	}
}

// from is the first key that the scope may have, from a path on.
func (c scope) from(start string) keepwatch.Key {
	if !c.recursive {
		return keyOf(c.path)
	}
	return c.first(start)
}

// objects iterates over a snapshot's objects in the scope, in key order, from a
// path on.
func (c scope) objects(snapshot *store.Snapshot, start string) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for segment := range c.segments(snapshot, start) {
			for o := range segment.All() {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// count is how many objects of the scope a snapshot has from a path on.
func (c scope) count(snapshot *store.Snapshot, start string) (n int64) {
	for segment := range c.segments(snapshot, start) {
		n += int64(segment.Len())
	}
	return n
}

// filter is the store's filter for a watch, and whether all it goes by is keys. Any other
// needs to read the objects. One that can't be read is neither taken for one that matches
// nor for one that does not: the watch ends.
func (s *Storage) filter(c scope, p apistorage.SelectionPredicate) (f store.Filter, byKey bool) {
	namespace, single := c.single()
	switch {
	case single:
		f.Namespace = namespace
	case !c.recursive:
		key := keyOf(c.path)
		f.Namespace, f.Name = key.Namespace, key.Name
	case c.path != "": // no API server asks for it
		f = s.selecting(f, p)
		readable, match := f.Readable, f.Match
		f.Readable = func(o keepwatch.Object) error {
			if !c.covers(o.Key()) {
				return nil
			}
			return readable(o)
		}
		f.Match = func(o keepwatch.Object) bool { return c.covers(o.Key()) && match(o) }
		return f, false
	}
	if names, ok := named(p, f); ok {
		return names, true
	}
	return s.selecting(f, p), false
}

// selecting adds to a filter that an object must match a predicate.
func (s *Storage) selecting(f store.Filter, p apistorage.SelectionPredicate) store.Filter {
	f.Readable = func(o keepwatch.Object) error { _, err := s.Read(o); return err }
	f.Match = func(o keepwatch.Object) bool { return o.(*Object).matches(p) }
	return f
}

// named adds to a filter what a predicate says of names, if it says nothing else
// and does not contradict.
func named(p apistorage.SelectionPredicate, f store.Filter) (store.Filter, bool) {
	if p.Label != nil && !p.Label.Empty() || p.ShardSelector != nil && !p.ShardSelector.Empty() {
		return f, false
	}
	for _, r := range p.Field.Requirements() {
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
