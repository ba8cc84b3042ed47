package watchcache

import (
	"iter"
	"sort"
	"strings"

	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// scope is the set of keys that a request names.
type scope struct {
	// key is the request's, in full: "/pods/default/" or "/pods/default/web".
	key string
	// path is what follows the resource's prefix. Invariant: if the scope is recursive
	// it is empty or ends in "/".
	path      string
	recursive bool
	// namespaced is Config.Namespaced.
	namespaced bool
	// within restricts the scope to some namespaces; nil does not.
	within *Namespaces
}

// scope parses a request's key.
func (c *Cache) scope(key string, recursive bool) (scope, error) {
	prefix := c.ResourcePrefix() + "/"
	key, err := apistorage.PrepareKey(prefix, key, recursive)
	if err != nil {
		return scope{}, err
	}
	return scope{key: key, path: strings.TrimPrefix(key, prefix), recursive: recursive, namespaced: c.config.Namespaced},
		nil
}

// Accepts reports whether a key has the form of the resource's keys: a namespace and a name, or only
// a name. The source must ignore other keys.
func (c *Cache) Accepts(key keepwatch.Key) bool {
	return (key.Namespace != "") == c.config.Namespaced && key.Name != "" && !strings.Contains(key.Name, "/")
}

// keyOf returns the store's key for a path.
func keyOf(path string) keepwatch.Key {
	namespace, name, ok := strings.Cut(path, "/")
	if !ok || namespace == "" || name == "" {
		return keepwatch.Key{Name: path}
	}
	return keepwatch.Key{Namespace: namespace, Name: name}
}

// single reports whether the scope is one namespace, which it returns.
func (s scope) single() (namespace string, ok bool) {
	namespace, below, _ := strings.Cut(s.path, "/")
	return namespace, s.recursive && namespace != "" && below == ""
}

// covers reports whether a key is in the scope.
func (s scope) covers(key keepwatch.Key) bool {
	if s.within != nil && !s.within.covers(key) {
		return false
	}
	if !s.recursive {
		return key == keyOf(s.path)
	}
	if namespace, ok := s.single(); ok {
		return key.Namespace == namespace
	}
	return s.path == "" || strings.HasPrefix(key.String(), s.path)
}

// first returns the first key of the scope in a snapshot, or the first from a path on: a page may
// begin in its middle.
func (s scope) first(start string) keepwatch.Key {
	start = max(start, s.path)
	if !s.namespaced { // a token may name a namespace all the same
		return keepwatch.Key{Name: start}
	}
	namespace, name, ended := strings.Cut(start, "/")
	if !ended && start != "" {
		namespace += "\x00" // before those that continue it: "ns-a/" is before "ns/"
	}
	return keepwatch.Key{Namespace: namespace, Name: name}
}

// segments iterates over the segments of a snapshot's objects in the scope, in key order, from a
// path on.
func (s scope) segments(snapshot *store.Snapshot, start string) iter.Seq[store.Segment] {
	if s.within != nil && s.recursive && s.path == "" {
		return s.within.segments(snapshot, start)
	}
	return func(yield func(store.Segment) bool) {
		for segment := range snapshot.SegmentsFrom(s.from(start)) {
			n := segment.Len()
			if s.covers(segment.Key(n - 1)) {
				if !yield(segment) {
					return
				}
				continue
			}
			covered := sort.Search(n, func(i int) bool { return !s.covers(segment.Key(i)) })
			if covered > 0 {
				yield(segment.Part(0, covered))
			}
			return
		}
	}
}

// from returns the first key that the scope may have, from a path on.
func (s scope) from(start string) keepwatch.Key {
	if !s.recursive {
		return keyOf(s.path)
	}
	return s.first(start)
}

// objects iterates over a snapshot's objects in the scope, in key order, from a path on.
func (s scope) objects(snapshot *store.Snapshot, start string) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for segment := range s.segments(snapshot, start) {
			for o := range segment.All() {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// parts iterates over scopes whose keys from a path on are those of this one, in order, each without a gap.
func (s scope) parts(start string) iter.Seq[scope] {
	return func(yield func(scope) bool) {
		if s.within == nil || !s.recursive || s.path != "" {
			yield(s)
			return
		}
		for _, part := range s.within.scopesFrom(start) {
			if !yield(part) {
				return
			}
		}
	}
}

// count returns how many objects of the scope a snapshot has from a path on. It visits none of them.
func (s scope) count(snapshot *store.Snapshot, start string) int64 {
	if s.within != nil && s.recursive && s.path == "" {
		return s.within.count(snapshot, start)
	}
	return int64(snapshot.CountFrom(s.from(start), s.covers))
}
