package objectjson

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// valueAppender returns the appender of single values of a type, or nil.
func valueAppender(t reflect.Type, wire protowire.Type) partAppender {
	switch {
	case t.Kind() == reflect.Pointer && !isDecoded(t):
		return valueAppender(t.Elem(), wire)
	case wire == protowire.VarintType:
		return numberAppender(t)
	case wire != protowire.BytesType:
		return nil
	case t == reflect.TypeFor[metav1.FieldsV1]():
		return appendFieldsV1Message
	case isDecoded(t):
		return decodedAppender(t)
	}
	switch t.Kind() {
	case reflect.String:
		return func(_ *partStack, b []byte, p part) ([]byte, error) { return appendString(b, p.bytes), nil }
	case reflect.Slice:
		if t.Elem() == reflect.TypeFor[byte]() {
			return func(_ *partStack, b []byte, p part) ([]byte, error) {
				return append(base64.StdEncoding.AppendEncode(append(b, '"'), p.bytes), '"'), nil
			}
		}
	case reflect.Struct:
		fields := messageFieldsOf(t)
		return func(s *partStack, b []byte, p part) ([]byte, error) { return fields().append(s, b, p.bytes) }
	}
	return nil
}

// numberAppender returns the appender of varints. Unmarshal cuts what is too large for the type.
func numberAppender(t reflect.Type) partAppender {
	switch {
	case hasMarshaler(t):
		return nil
	case t.Kind() == reflect.Bool:
		return func(_ *partStack, b []byte, p part) ([]byte, error) { return strconv.AppendBool(b, p.number != 0), nil }
	case t.Kind() == reflect.Int32:
		return func(_ *partStack, b []byte, p part) ([]byte, error) {
			return strconv.AppendInt(b, int64(int32(p.number)), 10), nil
		}
	case t.Kind() == reflect.Int64:
		return func(_ *partStack, b []byte, p part) ([]byte, error) {
			return strconv.AppendInt(b, int64(p.number), 10), nil
		}
	}
	return nil
}

// repeatedAppender returns the appender of the values of a slice.
func repeatedAppender(elem reflect.Type, wire protowire.Type) partAppender {
	value := valueAppender(elem, wire)
	if value == nil {
		return nil
	}
	return func(s *partStack, b []byte, p part) (_ []byte, err error) {
		next := byte('[')
		for len(p.bytes) > 0 {
			var one part
			one, p = p.next()
			if b, err = value(s, append(b, next), one); err != nil {
				return b, err
			}
			next = ','
		}
		return append(b, ']'), nil
	}
}

// entriesAppender returns the appender of a map. A message has its entries in the order of their keys.
func entriesAppender(elem reflect.Type) partAppender {
	wire := wireOf(elem)
	value := valueAppender(elem, wire)
	if value == nil || addressMatters(elem) && !isDecoded(elem) {
		return nil
	}
	entry := &messageFields{
		all:      []messageField{{number: 1, wire: protowire.BytesType}, {number: 2, wire: wire}},
		byNumber: []int{-1, 0, 1},
	}
	return func(s *partStack, b []byte, p part) (_ []byte, err error) {
		next, previous := byte('{'), []byte(nil)
		for len(p.bytes) > 0 {
			var one part
			var parts [2]part
			one, p = p.next()
			if err := entry.split(one.bytes, parts[:]); err != nil {
				return b, err
			}
			key, v := parts[0], parts[1]
			if !key.has || !v.has || next == ',' && bytes.Compare(previous, key.bytes) >= 0 {
				return b, errDecode
			}
			b = append(appendString(append(b, next), key.bytes), ':')
			if b, err = value(s, b, v); err != nil {
				return b, err
			}
			next, previous = ',', key.bytes
		}
		return append(b, '}'), nil
	}
}

// fieldsV1 is the message of metav1.FieldsV1.
var fieldsV1 = &messageFields{all: []messageField{{number: 1, wire: protowire.BytesType}}, byNumber: []int{-1, 0}}

// appendFieldsV1Message copies a set that structured-merge-diff wrote.
func appendFieldsV1Message(_ *partStack, b []byte, p part) ([]byte, error) {
	var raw [1]part
	if err := fieldsV1.split(p.bytes, raw[:]); err != nil || !isFieldSet(raw[0].bytes) {
		return b, errDecode
	}
	return append(b, raw[0].bytes...), nil
}

// isDecoded reports whether values of a type are decoded before they are encoded.
func isDecoded(t reflect.Type) bool {
	_, own := typeAppenders[t]
	return own || hasMarshaler(t) || t.Kind() != reflect.Struct &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]())
}

type unmarshaler interface{ Unmarshal([]byte) error }

// decodedAppender returns the appender of values that are decoded, or nil.
func decodedAppender(t reflect.Type) partAppender {
	values, encode := newDecodedValues(t), appenderOf(t)
	if values == nil {
		return nil
	}
	return func(_ *partStack, b []byte, p part) ([]byte, error) {
		v, err := values.get(p.bytes)
		defer values.put(v)
		if err != nil {
			return b, err
		}
		return encode(b, v.value)
	}
}

// decodedValues are variables of one type.
type decodedValues struct{ pool sync.Pool }

type decodedValue struct {
	value reflect.Value
	unmarshaler
}

// newDecodedValues returns nil if the type has no Unmarshal method.
func newDecodedValues(t reflect.Type) *decodedValues {
	if !reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]()) {
		return nil
	}
	return &decodedValues{sync.Pool{New: func() any {
		v := reflect.New(t)
		return &decodedValue{v.Elem(), v.Interface().(unmarshaler)}
	}}}
}

// get decodes a message into a variable, which the caller puts back. A list in a message of its own is not
// nil.
func (d *decodedValues) get(message []byte) (*decodedValue, error) {
	v := d.pool.Get().(*decodedValue)
	if t := v.value.Type(); t.Kind() == reflect.Slice {
		v.value.Set(reflect.MakeSlice(t, 0, 0))
	}
	return v, v.Unmarshal(message)
}

func (d *decodedValues) put(v *decodedValue) {
	v.value.SetZero()
	d.pool.Put(v)
}
