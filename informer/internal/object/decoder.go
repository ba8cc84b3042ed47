package object

import (
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/source/kube"
)

// decoder decodes values of one type. It belongs to one goroutine.
type decoder struct {
	goType  reflect.Type // of the struct
	kind    schema.GroupVersionKind
	json    jsonDecoder
	message *message // nil if the type cannot be decoded from protobuf
}

func newDecoder(example runtime.Object, kind schema.GroupVersionKind, options Options) *decoder {
	d := &decoder{goType: reflect.TypeOf(example).Elem(), kind: kind, json: jsonDecoder{interner: newInterner(options)}}
	if _, ok := example.(runtime.Unstructured); !ok {
		d.message = messageOf(d.goType)
	}
	return d
}

// decode decodes an object. kind is the kind that the object or its list named, if any.
func (d *decoder) decode(encoding kube.Encoding, body []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	v := reflect.New(d.goType)
	switch o := v.Interface().(type) {
	case *unstructured.Unstructured:
		if encoding != kube.JSON {
			return nil, fmt.Errorf("cannot decode unstructured objects from %v", encoding)
		}
		var err error
		if o.Object, err = d.json.untyped(body); err != nil {
			return nil, err
		}
		if o.GetKind() == "" || o.GetAPIVersion() == "" {
			o.SetGroupVersionKind(d.kindOr(kind))
		}
		return o, nil
	case *metav1.PartialObjectMetadata:
		err := d.typed(encoding, body, v.Elem())
		o.SetGroupVersionKind(d.kindOr(kind))
		return o, err
	case runtime.Object:
		err := d.typed(encoding, body, v.Elem())
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return o, err
	}
	panic(fmt.Sprintf("object: %v is not a runtime.Object", v.Type()))
}

// kindOr returns the kind of the codec, or else the one that the server named.
func (d *decoder) kindOr(named schema.GroupVersionKind) schema.GroupVersionKind {
	if d.kind.Empty() {
		return named
	}
	return d.kind
}

func (d *decoder) typed(encoding kube.Encoding, body []byte, v reflect.Value) error {
	switch {
	case encoding == kube.JSON:
		return d.json.typed(body, v)
	case d.message == nil:
		return fmt.Errorf("cannot decode %v from %v", d.goType, encoding)
	}
	return d.message.decode(d.json.interner, v, body)
}
