package object

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/maphash"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/source/kube"
)

// Codec decodes the objects of one resource. A kube.Source calls its Decode.
type Codec struct {
	// Cached, if set, returns the cached item of a key, nil if there is none. An object that did not change
	// is not decoded: Decode returns the cached item.
	Cached func(keepwatch.Key) *item.Item

	decoder
	lazy *lazyDecoder // nil if values are stored decoded
	seed maphash.Seed
}

// Options shape a codec.
type Options struct {
	// Compact stores objects encoded, and decodes them when they are read.
	Compact bool
	// Transformed: a transform changes objects in place. Then they share no mutable memory.
	Transformed bool
}

// New returns a codec of objects like the example, a pointer to a struct. kind is the kind of
// unstructured objects and metadata that do not contain their own.
func New(example runtime.Object, kind schema.GroupVersionKind, options Options) *Codec {
	c := &Codec{decoder: *newDecoder(example, kind, options), seed: maphash.MakeSeed()}
	if options.Compact {
		c.lazy = newLazyDecoder(example, kind, options)
	}
	return c
}

// Protobuf reports whether the objects can be decoded from protobuf.
func (c *Codec) Protobuf() bool { return c.message != nil }

// Decode returns the item of an object. An object that cannot be decoded becomes a rejected item. The
// error is always nil.
func (c *Codec) Decode(raw kube.Raw) (keepwatch.Object, error) {
	sum := maphash.Bytes(c.seed, content(raw))
	if c.Cached != nil {
		cached := c.Cached(raw.Key)
		if cached != nil && cached.Sum() == sum && cached.UID() == raw.UID && cached.Revision() == raw.Revision {
			return cached, nil
		}
	}
	return c.newItem(raw).MadeOf(sum), nil
}

// content returns the bytes that are compared: of JSON those without an apiVersion and a kind in front,
// which an event has and an item of a list may not have.
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

func (c *Codec) newItem(raw kube.Raw) *item.Item {
	value, err := c.decode(raw.Encoding, raw.Body, raw.Kind)
	if err != nil {
		return item.New(raw.Key, raw.UID, raw.Revision, nil).Rejected(fmt.Errorf("decode %s: %w", raw.Key, err))
	}
	if c.lazy != nil {
		return item.Pack(raw.Key, raw.UID, raw.Revision, c.lazy.encoded(raw, value))
	}
	// The item shares the strings of the value.
	meta := value.(metav1.Object)
	key := keepwatch.Key{Namespace: meta.GetNamespace(), Name: meta.GetName()}
	return item.New(key, cmp.Or(keepwatch.UID(meta.GetUID()), raw.UID), raw.Revision, value)
}
