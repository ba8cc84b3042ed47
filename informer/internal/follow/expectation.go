package follow

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// expectation is the type that objects must have; nil is any.
type expectation struct {
	goType reflect.Type
	kind   schema.GroupVersionKind // of unstructured objects, empty for any
}

// expecting returns the type of objects like the example.
func expecting(example runtime.Object) expectation {
	if example == nil {
		return expectation{}
	}
	e := expectation{goType: reflect.TypeOf(example)}
	if u, ok := example.(runtime.Unstructured); ok {
		e.kind = u.GetObjectKind().GroupVersionKind()
	}
	return e
}

func (e expectation) check(value any) error {
	if e.goType == nil {
		return nil
	}
	if got := reflect.TypeOf(value); got != e.goType {
		return fmt.Errorf("a %v is not a %v", got, e.goType)
	}
	if e.kind.Empty() {
		return nil
	}
	if got := value.(runtime.Object).GetObjectKind().GroupVersionKind(); got != e.kind {
		return fmt.Errorf("a %v is not a %v", got, e.kind)
	}
	return nil
}
