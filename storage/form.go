package storage

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

// form is what the bytes are that are kept of an object. The values are closed.
type form uint8

const (
	// stored is what etcd has, decrypted, which the codec reads each time: of Go types
	// that nobody is served, and of what might not be the same after a round trip
	// through another form.
	stored form = iota
	// message is the protobuf message of the Go type, without the API's envelope.
	message
	// document is the JSON that the API serves, without a line break at its end.
	document
	// sealed is what etcd has, encrypted or not, which nobody has read yet.
	sealed
	// unpacked is what etcd has, decrypted, of an object that was read, but not yet made a message.
	unpacked
)

// protobuf is a Go type that the API's generated code can read and write.
type protobuf interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// envelope is what all objects begin with that the API's serializers write as
// protobuf.
var envelope = []byte("k8s\x00")

// formOf is the form in which an object is kept, given what etcd has of it.
func (s *Storage) formOf(o runtime.Object, plain []byte) form {
	if reflect.TypeOf(o) != s.goType {
		return stored
	}
	switch o := o.(type) {
	case *unstructured.Unstructured:
		return document
	case protobuf:
		// A message says neither which kind it is, nor that a list is empty and not absent.
		if !s.nests && bytes.HasPrefix(plain, envelope) && o.GetObjectKind().GroupVersionKind().Empty() {
			return message
		}
	}
	return stored
}

// nests reports whether objects of a Go type have others in them that say which kind
// they are, as a StatefulSet has claims: no message says that of them.
func nests(whole reflect.Type) bool {
	seen := map[reflect.Type]bool{}
	var says func(reflect.Type) bool
	says = func(t reflect.Type) bool {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			return says(t.Elem())
		case reflect.Struct:
			if seen[t] {
				return false
			}
			seen[t] = true
			for f := range t.Fields() {
				if f.Type == reflect.TypeFor[metav1.TypeMeta]() && t != whole || says(f.Type) {
					return true
				}
			}
		}
		return false
	}
	return says(whole)
}

// pack writes an object in a form.
func (s *Storage) pack(f form, o runtime.Object) ([]byte, error) {
	switch f {
	case message:
		return o.(protobuf).Marshal()
	case document:
		return json.Marshal(o.(*unstructured.Unstructured).Object)
	}
	return runtime.Encode(s.config.Codec, o)
}

// unpack reads what was packed, or what etcd has.
func (s *Storage) unpack(f form, b []byte, revision keepwatch.Revision) (runtime.Object, error) {
	switch f {
	case message:
		o := s.config.NewFunc()
		return o, o.(protobuf).Unmarshal(b)
	case document:
		o := &unstructured.Unstructured{}
		return o, utiljson.Unmarshal(b, &o.Object)
	}
	o, _, err := s.config.Codec.Decode(b, nil, s.config.NewFunc())
	if err != nil {
		return nil, err
	}
	if err := s.versioner.UpdateObject(o, uint64(revision)); err != nil {
		return nil, fmt.Errorf("unable to set the revision: %w", err)
	}
	return o, nil
}
