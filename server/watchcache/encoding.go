package watchcache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/keepwatch/keepwatch"
)

// encoding is how the bytes of an object are encoded. The values are closed.
type encoding uint8

const (
	// fromSource is the source's, decrypted. The codec decodes it each time. It is used for Go
	// types that are not served in a known version, and for bytes that might change in a round trip
	// through another encoding.
	fromSource encoding = iota
	// message is the protobuf message of the Go type, or of its served version, without the API's
	// envelope.
	message
	// document is the JSON that the API serves, without a line break at its end.
	document
	// verbatim is the source's, which is served as it is: Verbatim says in which encoding.
	verbatim
	// encoded is the source's, encrypted or not, which has not been decoded yet.
	encoded
	// pending is the source's, decrypted, of a decoded object whose message has not been made yet.
	pending
)

// Verbatim is an object that is served as its source has it, without a Go type of its kind: a proxy must
// not drop fields that a newer server knows. The codec that decodes it need only decode its metadata.
type Verbatim interface {
	runtime.Object
	// Protobuf reports whether the source's bytes are a protobuf message, otherwise one JSON value.
	Protobuf() bool
	// Metadata returns the object's PartialObjectMetadata as it stands in a list: in JSON with its kind, or the
	// protobuf message. It fails for an encoding that the server would not make of the source's.
	Metadata(protobuf bool) ([]byte, error)
}

// protobuf is a Go type with generated protobuf code of the API.
type protobuf interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// envelope begins all objects that the API's serializers write as protobuf.
var envelope = []byte("k8s\x00")

// encodingOf returns the encoding in which an object is cached, given the source's bytes and the kind
// that they name.
func (f *family) encodingOf(o runtime.Object, plain []byte, stored *schema.GroupVersionKind) encoding {
	if reflect.TypeOf(o) != f.goType {
		return fromSource
	}
	switch o.(type) {
	case Verbatim:
		return verbatim
	case *unstructured.Unstructured:
		return document
	}
	// An internal type may have fields of another version that the served one does not have.
	if f.config.Served != nil && (stored == nil || stored.GroupVersion() != f.config.Served.GroupVersion) {
		return fromSource
	}
	// A message says neither which kind it is, nor that a list is empty and not absent.
	if f.hasMessage && bytes.HasPrefix(plain, envelope) && o.GetObjectKind().GroupVersionKind().Empty() {
		return message
	}
	return fromSource
}

// hasMessage reports whether the objects of a type can be cached as messages.
func hasMessage(example runtime.Object) bool {
	_, ok := example.(protobuf)
	return ok && !nests(reflect.TypeOf(example).Elem())
}

// newMessage returns an empty object of the type that messages are of.
func (f *family) newMessage() protobuf {
	if f.config.Served != nil {
		return f.config.Served.New().(protobuf)
	}
	return f.config.NewFunc().(protobuf)
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
func (f *family) marshal(e encoding, o runtime.Object) ([]byte, error) {
	switch e {
	case message:
		if f.config.Served != nil {
			var err error
			if o, err = f.config.Served.To(o); err != nil {
				return nil, err
			}
		}
		return o.(protobuf).Marshal()
	case document:
		return json.Marshal(o.(*unstructured.Unstructured).Object)
	}
	return runtime.Encode(f.config.Codec, o)
}

// unmarshal decodes what marshal encoded, or the source's bytes.
func (f *family) unmarshal(e encoding, b []byte, revision keepwatch.Revision) (runtime.Object, error) {
	switch e {
	case message:
		o := f.newMessage()
		if err := o.Unmarshal(b); err != nil || f.config.Served == nil {
			return o, err
		}
		return f.config.Served.From(o)
	case document:
		o := &unstructured.Unstructured{}
		return o, utiljson.Unmarshal(b, &o.Object)
	}
	o, _, err := f.decodeSource(b, revision)
	return o, err
}

// decodeSource decodes the source's bytes. It returns the kind that they name.
func (f *family) decodeSource(b []byte, revision keepwatch.Revision) (runtime.Object, *schema.GroupVersionKind, error) {
	o, stored, err := f.config.Codec.Decode(b, nil, f.config.NewFunc())
	if err != nil {
		return nil, nil, err
	}
	if err := versioner.UpdateObject(o, uint64(revision)); err != nil {
		return nil, nil, fmt.Errorf("unable to set the revision: %w", err)
	}
	return o, stored, nil
}
