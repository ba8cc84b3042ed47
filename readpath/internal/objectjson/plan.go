package objectjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"sync"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
)

// Append appends the JSON of an object, without a line break. It reports false for an object that it
// cannot encode: the API machinery's serializer encodes that one, or says why not.
func Append(b []byte, o runtime.Object) ([]byte, bool) {
	if _, ok := o.(runtime.CacheableObject); ok { // it decides itself
		return b, false
	}
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return b, false
	}
	out, err := appenderOf(v.Type().Elem())(b, v.UnsafePointer())
	return out, err == nil
}

// appender appends the value of its type that a pointer points to. Plans are walked with pointers and
// not with reflect.Value, which takes about twice as long.
type appender func(b []byte, p unsafe.Pointer) ([]byte, error)

// appenders are those of all types: reflect.Type to appender.
var appenders sync.Map

// appenderOf finds out how a type is encoded.
func appenderOf(t reflect.Type) appender {
	if known, ok := appenders.Load(t); ok {
		return known.(appender)
	}
	// A type may contain itself: until it is known, it is looked up again.
	made := sync.OnceValue(func() appender { return newAppender(t) })
	known, loaded := appenders.LoadOrStore(t, appender(func(b []byte, p unsafe.Pointer) ([]byte, error) { return made()(b, p) }))
	if loaded {
		return known.(appender)
	}
	appenders.Store(t, made())
	return made()
}

func newAppender(t reflect.Type) appender {
	if known, ok := machinery[t]; ok {
		return known
	}
	if encodesItself(t) || t == reflect.TypeFor[json.Number]() {
		return elseOf(t)
	}
	switch t.Kind() {
	case reflect.Bool:
		return appendBool
	case reflect.Int:
		return appendInt[int]
	case reflect.Int32:
		return appendInt[int32]
	case reflect.Int64:
		return appendInt[int64]
	case reflect.String:
		return appendText
	case reflect.Struct:
		if fields, ok := fieldsOf(t); ok {
			return fields.append
		}
	case reflect.Pointer:
		return pointerTo(appenderOf(t.Elem()))
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return sliceOf(t.Elem())
		}
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return appendTexts
		}
		if t.Key().Kind() == reflect.String && !addressMatters(t.Elem()) {
			return mapOf(t)
		}
	}
	return elseOf(t)
}

// elseOf leaves values of a type to encoding/json.
func elseOf(t reflect.Type) appender {
	return func(b []byte, p unsafe.Pointer) ([]byte, error) {
		encoded, err := json.Marshal(reflect.NewAt(t, p).Interface())
		return append(b, encoded...), err
	}
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// encodesItself reports whether a type, or a pointer to it, has a method that encoding/json calls.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(marshaler) || p.Implements(textMarshaler)
}

// addressMatters reports whether values of a type, or some in them, are encoded in another way if
// they have no address: those whose pointers encode themselves, and they do not. The values of a map
// have none.
func addressMatters(t reflect.Type) bool {
	if encodesItself(t) {
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
	return false // what a pointer, a slice or a map refers to is on its own
}
