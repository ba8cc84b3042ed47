package informer

import (
	"iter"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Snapshot is the state of a resource at one moment: its objects and all indexes
// of them. It never changes.
type Snapshot[T runtime.Object] struct{ state *store.Snapshot }

// Revision is what the state is of, 0 before the first list.
func (s Snapshot[T]) Revision() keepwatch.Revision { return s.state.Revision() }

// Get finds an object; namespace is "" for cluster-scoped ones.
func (s Snapshot[T]) Get(namespace, name string) (object T, ok bool) {
	if o, there := s.state.Get(keepwatch.Key{Namespace: namespace, Name: name}); there {
		if i := shown(o); i != nil {
			return i.Value().(T), true
		}
	}
	return object, false
}

// All iterates over the objects in the order of LIST.
func (s Snapshot[T]) All() iter.Seq[T] { return inSegments[T](s.state.Segments()) }

// Namespace iterates over a namespace's objects in the order of LIST.
func (s Snapshot[T]) Namespace(namespace string) iter.Seq[T] {
	return inSegments[T](s.state.SegmentsIn(namespace))
}

// ByIndex iterates over the objects that have a value in an index, in the order of
// LIST: none if there is no such index.
func (s Snapshot[T]) ByIndex(name, value string) iter.Seq[T] {
	index, ok := s.state.Index(name)
	if !ok {
		return func(func(T) bool) {}
	}
	return typed[T](index.Objects(value))
}

func inSegments[T any](segments iter.Seq[store.Segment]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for s := range segments {
			if !inSegment(s, yield) {
				return
			}
		}
	}
}

// inSegment calls yield for the objects of a segment, until it returns false.
func inSegment[T any](s store.Segment, yield func(T) bool) bool {
	if s.Whole() {
		if known := plain.Of(s); known != nil {
			for _, value := range known {
				if !yield(value.(T)) {
					return false
				}
			}
			return true
		}
	}
	for object := range typed[T](s.All()) {
		if !yield(object) {
			return false
		}
	}
	return true
}

func typed[T any](objects iter.Seq[keepwatch.Object]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range objects {
			if i := shown(o); i != nil && !yield(i.Value().(T)) {
				return
			}
		}
	}
}
