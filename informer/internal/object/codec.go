package object

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/source/kube"
)

// Codec decodes the objects of one resource. Its Decode is for a kube.Source.
type Codec struct {
	// Held, if set, is what is held of a key, nil for nothing. An object that comes
	// again as it was is that, and is not decoded.
	Held func(keepwatch.Key) *item.Item

	decoder
	compact *unpacker // nil where values are kept as they are
	seed    maphash.Seed
}

// Options shape a codec.
type Options struct {
	// Compact keeps objects encoded, and decodes them when they are asked for.
	Compact bool
	// Transformed objects are changed in place before they are shown: they have no
	// memory in common that could be changed.
	Transformed bool
}

// New makes a codec for objects like the example, a pointer to a struct. kind is
// what unstructured objects and metadata are given that do not say it themselves.
func New(example runtime.Object, kind schema.GroupVersionKind, options Options) *Codec {
	c := &Codec{decoder: *newDecoder(example, kind, options), seed: maphash.MakeSeed()}
	if options.Compact {
		c.compact = newUnpacker(example, kind, options)
	}
	return c
}

// Protobuf reports whether the objects can be read from protobuf.
func (c *Codec) Protobuf() bool { return c.message != nil }

// Decode makes an item. One that can't be decoded is rejected: it keeps its place
// and is not shown. The error is always nil.
func (c *Codec) Decode(raw kube.Raw) (keepwatch.Object, error) {
	sum := maphash.Bytes(c.seed, content(raw))
	if c.Held != nil {
		held := c.Held(raw.Key)
		if held != nil && held.Sum() == sum && held.UID() == raw.UID && held.Revision() == raw.Revision {
			return held, nil
		}
	}
	return c.make(raw).MadeOf(sum), nil
}

// content is what is to be compared of an object: in JSON without apiVersion and
// kind at its front, which events have and items of a list may not.
func content(raw kube.Raw) []byte {
	if raw.Encoding != kube.JSON {
		return raw.Body
	}
	version, kind := raw.Kind.ToAPIVersionAndKind()
	for _, front := range [...]string{
		`{"kind":"` + kind + `","apiVersion":"` + version + `",`,
		`{"apiVersion":"` + version + `","kind":"` + kind + `",`,
		`{`,
	} {
		if rest, ok := bytes.CutPrefix(raw.Body, []byte(front)); ok {
			return rest
		}
	}
	return raw.Body
}

func (c *Codec) make(raw kube.Raw) *item.Item {
	value, err := c.decode(raw.Encoding, raw.Body, raw.Kind)
	if err != nil {
		return item.New(raw.Key, raw.UID, raw.Revision, nil).Rejected(fmt.Errorf("decode %s: %w", raw.Key, err))
	}
	if c.compact != nil {
		return item.Pack(raw.Key, raw.UID, raw.Revision, c.compact.pack(raw, value))
	}
	// The strings of the value will do for the item, too.
	about := value.(metav1.Object)
	key := keepwatch.Key{Namespace: about.GetNamespace(), Name: about.GetName()}
	return item.New(key, keepwatch.UID(about.GetUID()), raw.Revision, value)
}

// decoder makes values. It belongs to one goroutine.
type decoder struct {
	goType  reflect.Type // of the struct
	kind    schema.GroupVersionKind
	tree    tree
	message *message // how the type is read from protobuf, nil if it is not
}

func newDecoder(example runtime.Object, kind schema.GroupVersionKind, options Options) *decoder {
	d := &decoder{goType: reflect.TypeOf(example).Elem(), kind: kind, tree: tree{interner: newInterner(options)}}
	if _, ok := example.(runtime.Unstructured); !ok {
		d.message = messageOf(d.goType)
	}
	return d
}

// decode decodes an object that says that it is of a kind, or says nothing.
func (d *decoder) decode(encoding kube.Encoding, body []byte, kind schema.GroupVersionKind) (runtime.Object, error) {
	v := reflect.New(d.goType)
	switch o := v.Interface().(type) {
	case *unstructured.Unstructured:
		if encoding != kube.JSON {
			return nil, fmt.Errorf("unstructured objects can't be read from %v", encoding)
		}
		var err error
		if o.Object, err = d.tree.object(body); err != nil {
			return nil, err
		}
		if o.GetKind() == "" || o.GetAPIVersion() == "" {
			o.SetGroupVersionKind(d.kindOr(kind))
		}
		return o, nil
	case *metav1.PartialObjectMetadata:
		err := d.read(encoding, body, v.Elem())
		o.SetGroupVersionKind(d.kindOr(kind))
		return o, err
	case runtime.Object:
		err := d.read(encoding, body, v.Elem())
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return o, err
	}
	panic(fmt.Sprintf("object: %v is no object", v.Type()))
}

// kindOr is the kind of the objects, or else the one that was said.
func (d *decoder) kindOr(said schema.GroupVersionKind) schema.GroupVersionKind {
	if d.kind.Empty() {
		return said
	}
	return d.kind
}

func (d *decoder) read(encoding kube.Encoding, body []byte, v reflect.Value) error {
	switch {
	case encoding == kube.JSON:
		return readerOf(d.goType)(&d.tree, &text{b: body}, v)
	case d.message == nil:
		return fmt.Errorf("%v can't be read from %v", d.goType, encoding)
	}
	return d.message.decode(d.tree.interner, v, body)
}
