package follow

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"

	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// summed returns an object with a hash of its value before the transform, so that one that did not change is not
// transformed again. It may change o, which is not shared yet.
func (a *applier) summed(o *item.Item) *item.Item {
	if a.transform == nil || o.Sum() != 0 || o.Err() != nil {
		return o
	}
	encode := json.Marshal
	if m, ok := o.Value().(interface{ Marshal() ([]byte, error) }); ok {
		encode = func(any) ([]byte, error) { return m.Marshal() }
	}
	text, err := encode(o.Value())
	if err != nil {
		return o // it is transformed, and compared, each time
	}
	return o.MadeOf(maphash.Bytes(a.seed, text))
}

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
