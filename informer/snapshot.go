package informer

import (
	"iter"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/follow"
	"github.com/keepwatch/keepwatch/store"
)

// Snapshot is the state of a resource at one revision: its objects, and all indexes of
// them. It never changes.
type Snapshot[T runtime.Object] struct{ state *store.Snapshot }

// Revision returns the revision of the state, 0 before the first list.
func (s Snapshot[T]) Revision() keepwatch.Revision { return s.state.Revision() }

// Get returns an object. namespace is "" for cluster-scoped objects.
func (s Snapshot[T]) Get(namespace, name string) (object T, ok bool) {
	if o, found := s.state.Get(keepwatch.Key{Namespace: namespace, Name: name}); found {
		if i := follow.Shown(o); i != nil {
			return i.Value().(T), true
		}
	}
	return object, false
}

// All iterates over the objects in the order of LIST.
func (s Snapshot[T]) All() iter.Seq[T] { return follow.InSegments[T](s.state.Segments()) }

// Namespace iterates over a namespace's objects in the order of LIST.
func (s Snapshot[T]) Namespace(namespace string) iter.Seq[T] {
	return follow.InSegments[T](s.state.SegmentsIn(namespace))
}

// ByIndex iterates over the objects that have a value in an index, in the order of LIST. If
// there is no such index, it iterates over none.
func (s Snapshot[T]) ByIndex(name, value string) iter.Seq[T] {
	index, ok := s.state.Index(name)
	if !ok {
		return func(func(T) bool) {}
	}
	return follow.Values[T](index.Objects(value))
}
