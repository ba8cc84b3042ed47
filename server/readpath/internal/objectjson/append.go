package objectjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// Append appends the JSON of an object, without a line break. It returns false for an object that it
// cannot encode. The caller then calls the API machinery's serializer, which encodes the object or
// returns the error.
func Append(b []byte, o runtime.Object) ([]byte, bool) {
	if _, ok := o.(runtime.CacheableObject); ok { // it has an encoding of its own
		return b, false
	}
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return b, false
	}
	out, err := appenderOf(v.Type().Elem())(b, v.Elem())
	return out, err == nil
}

// appender appends a value of one type. The value is addressable.
type appender func(b []byte, v reflect.Value) ([]byte, error)

// appenders maps each reflect.Type to its appender.
var appenders sync.Map

func appenderOf(t reflect.Type) appender {
	if known, ok := appenders.Load(t); ok {
		return known.(appender)
	}
	// A type may contain itself: until its appender is complete, one that waits for it takes its place.
	made := sync.OnceValue(func() appender { return newAppender(t) })
	known, loaded := appenders.LoadOrStore(t, appender(func(b []byte, v reflect.Value) ([]byte, error) {
		return made()(b, v)
	}))
	if loaded {
		return known.(appender)
	}
	appenders.Store(t, made())
	return made()
}

func newAppender(t reflect.Type) appender {
	if known, ok := typeAppenders[t]; ok {
		return known
	}
	if hasMarshaler(t) || t == reflect.TypeFor[json.Number]() {
		return appendByLibrary
	}
	switch t.Kind() {
	case reflect.Bool:
		return appendBool
	case reflect.Int, reflect.Int32, reflect.Int64:
		return appendInt
	case reflect.String:
		return appendText
	case reflect.Struct:
		if fields, ok := fieldsOf(t); ok {
			return fields.append
		}
	case reflect.Pointer:
		return pointerAppender(t)
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return sliceAppender(t)
		}
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return appendStringMap
		}
		if t.Key().Kind() == reflect.String && !addressMatters(t.Elem()) {
			return mapAppender(t)
		}
	}
	return appendByLibrary
}

// appendByLibrary calls encoding/json.
func appendByLibrary(b []byte, v reflect.Value) ([]byte, error) {
	encoded, err := json.Marshal(v.Addr().Interface())
	return append(b, encoded...), err
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// hasMarshaler reports whether a type, or a pointer to it, has a method that encoding/json calls.
func hasMarshaler(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(marshaler) || p.Implements(textMarshaler)
}

// addressMatters reports whether encoding/json encodes values of a type, or some in them, in another
// way if they are not addressable: those whose marshaler is a method of the pointer. The values of a
// map are not addressable.
func addressMatters(t reflect.Type) bool {
	if hasMarshaler(t) {
		return !t.Implements(marshaler) && !t.Implements(textMarshaler)
	}
	switch t.Kind() {
	case reflect.Array:
		return addressMatters(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if addressMatters(f.Type) {
				return true
			}
		}
	}
	return false // a pointer, slice or map refers to addressable values
}
