package objectjson

import (
	"reflect"
	"strings"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field is one of a struct, or of a struct that is embedded in it.
type field struct {
	name   string // encoded, with a colon
	offset uintptr
	omit   condition // nil if it never is
	value  appender
}

// condition reports something of the value that a pointer points to.
type condition func(unsafe.Pointer) bool

// structure is a struct's fields, in their order.
type structure []field

func (s structure) append(b []byte, p unsafe.Pointer) (_ []byte, err error) {
	next := byte('{')
	for i := range s {
		f := &s[i]
		at := unsafe.Add(p, f.offset)
		if f.omit != nil && f.omit(at) {
			continue
		}
		b = append(append(b, next), f.name...)
		next = ','
		if b, err = f.value(b, at); err != nil {
			return b, err
		}
	}
	if next == '{' {
		b = append(b, '{')
	}
	return append(b, '}'), nil
}

// fieldsOf finds the fields of a struct. It reports false if they have anything that the API's types
// do not: names that hide others, embedded pointers, other options.
func fieldsOf(t reflect.Type) (s structure, ok bool) {
	s, ok = appendFields(nil, t, 0)
	names := map[string]bool{}
	for _, f := range s {
		if names[f.name] {
			return nil, false
		}
		names[f.name] = true
	}
	return s, ok
}

// appendFields appends those of a struct that is at an offset of another.
func appendFields(s structure, t reflect.Type, offset uintptr) (_ structure, ok bool) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && !f.IsExported():
			return nil, false
		case !f.IsExported(), tag == "-":
			continue
		case f.Anonymous && name == "":
			if f.Type.Kind() != reflect.Struct {
				return nil, false
			}
			if s, ok = appendFields(s, f.Type, offset+f.Offset); !ok {
				return nil, false
			}
			continue
		case name == "":
			name = f.Name
		}
		omit, known := omitted(f.Type, options)
		if !known || !isName(name) {
			return nil, false
		}
		s = append(s, field{`"` + name + `":`, offset + f.Offset, omit, appenderOf(f.Type)})
	}
	return s, true
}

// isName reports whether a name is encoded as it is, and is one for encoding/json.
func isName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("$-_./", r))
	})
}

// omitted returns when a field is left out, nil for never, and whether all its options are known.
func omitted(t reflect.Type, options string) (omit condition, known bool) {
	for option := range strings.SplitSeq(options, ",") {
		var also condition
		switch option {
		case "", "inline":
			continue
		case "omitempty":
			also = emptyOf(t)
		case "omitzero":
			if t.Kind() == reflect.Interface {
				return nil, false
			}
			also = zeroOf(t)
		default:
			return nil, false
		}
		switch first := omit; {
		case first == nil:
			omit = also
		case also != nil:
			omit = func(p unsafe.Pointer) bool { return first(p) || also(p) }
		}
	}
	return omit, true
}

// emptyOf returns what omitempty leaves out of a type, nil for nothing.
func emptyOf(t reflect.Type) condition {
	switch t.Kind() {
	case reflect.Struct:
		return nil
	case reflect.Bool:
		return isZero[bool]
	case reflect.Int:
		return isZero[int]
	case reflect.Int32:
		return isZero[int32]
	case reflect.Int64:
		return isZero[int64]
	case reflect.String:
		return isZero[string]
	case reflect.Pointer:
		return isZero[unsafe.Pointer]
	case reflect.Slice:
		return func(p unsafe.Pointer) bool { return (*slice)(p).len == 0 }
	case reflect.Map:
		return func(p unsafe.Pointer) bool { return isZero[unsafe.Pointer](p) || reflect.NewAt(t, p).Elem().Len() == 0 }
	case reflect.Array:
		return func(unsafe.Pointer) bool { return t.Len() == 0 }
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
}

func isZero[T comparable](p unsafe.Pointer) bool {
	var zero T
	return *(*T)(p) == zero
}

type zeroer interface{ IsZero() bool }

// zeroOf returns what omitzero leaves out of a type.
func zeroOf(t reflect.Type) condition {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return func(p unsafe.Pointer) bool { return (*metav1.Time)(p).IsZero() }
	case t.Kind() == reflect.Pointer && t.Implements(reflect.TypeFor[zeroer]()):
		return func(p unsafe.Pointer) bool {
			return isZero[unsafe.Pointer](p) || reflect.NewAt(t, p).Elem().Interface().(zeroer).IsZero()
		}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()):
		return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Interface().(zeroer).IsZero() }
	}
	return func(p unsafe.Pointer) bool { return reflect.NewAt(t, p).Elem().IsZero() }
}
