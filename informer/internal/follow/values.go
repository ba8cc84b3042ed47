package follow

import (
	"iter"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// Shown returns an object's state, nil if it was rejected.
func Shown(o keepwatch.Object) *item.Item {
	if i := o.(*item.Item); i.Err() == nil {
		return i
	}
	return nil
}

// plain caches the values of a segment, so that a list of everything copies a few slices. It
// has nil for a segment with a rejected or packed object.
var plain = store.NewMemo(func(s store.Segment) []any {
	values := make([]any, 0, s.Len())
	for o := range s.All() {
		value, ok := o.(*item.Item).Plain()
		if !ok {
			return nil
		}
		values = append(values, value)
	}
	return values
})

// List returns the values of the objects in segments, without the rejected ones. about is
// their expected number.
func List(segments iter.Seq[store.Segment], about int) []any {
	all := make([]any, 0, about)
	for s := range segments {
		if values := plain.Of(s); values != nil {
			all = append(all, values...)
			continue
		}
		for o := range s.All() {
			if i := Shown(o); i != nil {
				all = append(all, i.Value())
			}
		}
	}
	return slices.Clip(all)
}

// InSegments iterates over the values of the objects in segments, without the rejected ones.
func InSegments[T any](segments iter.Seq[store.Segment]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for s := range segments {
			if !inSegment(s, yield) {
				return
			}
		}
	}
}

// inSegment calls yield for the values of a segment, until it returns false.
func inSegment[T any](s store.Segment, yield func(T) bool) bool {
	if s.Whole() {
		if values := plain.Of(s); values != nil {
			for _, value := range values {
				if !yield(value.(T)) {
					return false
				}
			}
			return true
		}
	}
	for value := range Values[T](s.All()) {
		if !yield(value) {
			return false
		}
	}
	return true
}

// Values iterates over the values of objects, without the rejected ones.
func Values[T any](objects iter.Seq[keepwatch.Object]) iter.Seq[T] {
	return func(yield func(T) bool) {
		for o := range objects {
			if i := Shown(o); i != nil && !yield(i.Value().(T)) {
				return
			}
		}
	}
}
