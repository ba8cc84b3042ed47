package follow

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// transformed returns an object as the transform returns it, rejected if the transform
// fails. A panic concerns one object: it is a failure, reported with its stack.
func (a *applier) transformed(o *item.Item) *item.Item {
	value, err := a.callTransform(o)
	if err != nil {
		return o.Rejected(fmt.Errorf("transform: %w", err))
	}
	return o.Showing(value)
}

func (a *applier) callTransform(o *item.Item) (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = reportPanic(p, "A transform panicked, and the object is skipped", "object", o.Key().String())
		}
	}()
	if value, err = a.transform(o.Value()); err == nil && isNil(value) {
		err = errors.New("it returned nil")
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
