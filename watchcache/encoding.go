package watchcache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch"
)

// encoding is how the bytes of an object are encoded. The values are closed.
type encoding uint8

const (
	// fromSource is the source's, decrypted. The codec decodes it each time. It is used for Go
	// types that are not served, and for bytes that might change in a round trip through another
	// encoding.
	fromSource encoding = iota
	// message is the protobuf message of the Go type, without the API's envelope.
	message
	// document is the JSON that the API serves, without a line break at its end.
	document
	// encoded is the source's, encrypted or not, which has not been decoded yet.
	encoded
	// pending is the source's, decrypted, of a decoded object whose message has not been made yet.
	pending
)

// protobuf is a Go type with generated protobuf code of the API.
type protobuf interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// envelope begins all objects that the API's serializers write as protobuf.
var envelope = []byte("k8s\x00")

// encodingOf returns the encoding in which an object is cached, given the source's bytes.
func (c *Cache) encodingOf(o runtime.Object, plain []byte) encoding {
	if reflect.TypeOf(o) != c.goType {
		return fromSource
	}
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return document
	case protobuf:
		// A message says neither which kind it is, nor that a list is empty and not absent.
		if !c.nests && bytes.HasPrefix(plain, envelope) && o.GetObjectKind().GroupVersionKind().Empty() {
			return message
		}
	}
	return fromSource
}

// nests reports whether objects of a Go type contain others that name their kind, as a
// StatefulSet contains claims: a message does not name it.
func nests(whole reflect.Type) bool {
	seen := map[reflect.Type]bool{}
	var namesKind func(reflect.Type) bool
	namesKind = func(t reflect.Type) bool {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			return namesKind(t.Elem())
		case reflect.Struct:
			if seen[t] {
				return false
			}
			seen[t] = true
			for f := range t.Fields() {
				if f.Type == reflect.TypeFor[metav1.TypeMeta]() && t != whole || namesKind(f.Type) {
					return true
				}
			}
		}
		return false
	}
	return namesKind(whole)
}

// marshal encodes an object.
func (c *Cache) marshal(e encoding, o runtime.Object) ([]byte, error) {
	switch e {
	case message:
		return o.(protobuf).Marshal()
	case document:
		return json.Marshal(o.(*unstructured.Unstructured).Object)
	}
	return runtime.Encode(c.config.Codec, o)
}

// unmarshal decodes what marshal encoded, or the source's bytes.
func (c *Cache) unmarshal(e encoding, b []byte, revision keepwatch.Revision) (runtime.Object, error) {
	switch e {
	case message:
		o := c.config.NewFunc()
		return o, o.(protobuf).Unmarshal(b)
	case document:
		o := &unstructured.Unstructured{}
		return o, utiljson.Unmarshal(b, &o.Object)
	}
	o, _, err := c.config.Codec.Decode(b, nil, c.config.NewFunc())
	if err != nil {
		return nil, err
	}
	if err := versioner.UpdateObject(o, uint64(revision)); err != nil {
		return nil, fmt.Errorf("unable to set the revision: %w", err)
	}
	return o, nil
}
