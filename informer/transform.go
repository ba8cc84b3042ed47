package informer

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// Transform changes each state of each object once, before anybody sees it. An
// object for which it fails, panics or returns nil is skipped; see [Status]. Several
// are applied in order.
func Transform[T runtime.Object](f func(T) (T, error)) Option {
	return func(s *settings) {
		before := s.transform
		s.transform = func(value any) (any, error) {
			if before != nil {
				var err error
				if value, err = before(value); err != nil {
					return nil, err
				}
			}
			object, ok := value.(T)
			if !ok {
				return nil, fmt.Errorf("it is for a %v, not for a %T", reflect.TypeFor[T](), value)
			}
			return f(object)
		}
	}
}

// transformed is an object as the transform leaves it: rejected where that fails. A
// panic is a failure, since it concerns one object and must not end the process, and is
// reported with its stack besides.
func (t *applier) transformed(o *item.Item) *item.Item {
	value, err := t.change(o)
	if err != nil {
		return o.Rejected(fmt.Errorf("transform: %w", err))
	}
	return o.Showing(value)
}

// change calls the transform.
func (t *applier) change(o *item.Item) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p, "A transform panicked, and the object is skipped", "object", o.Key().String())
		}
	}()
	if value, err = t.transform(o.Value()); err == nil && isNil(value) {
		err = errors.New("it made nothing of the object")
	}
	return value, err
}

// isNil reports whether a value is nil, or a pointer that is.
func isNil(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
