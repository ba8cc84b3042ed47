package objectjson

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field is a field of a struct, or of a struct that is embedded in it.
type field struct {
	name   string // encoded, with a colon
	index  []int
	omit   condition // nil if the field is always encoded
	append appender
}

// condition is a predicate of the values of one type.
type condition func(reflect.Value) bool

// fields are the fields of a struct, in their order.
type fields []field

func (s fields) append(b []byte, v reflect.Value) (_ []byte, err error) {
	next := byte('{')
	for i := range s {
		f := &s[i]
		value := v
		for _, j := range f.index {
			value = value.Field(j)
		}
		if f.omit != nil && f.omit(value) {
			continue
		}
		b = append(append(b, next), f.name...)
		next = ','
		if b, err = f.append(b, value); err != nil {
			return b, err
		}
	}
	if next == '{' {
		b = append(b, '{')
	}
	return append(b, '}'), nil
}

// fieldsOf returns the fields of a struct. It returns false if the struct has anything that the API's
// types do not have: names that hide others, embedded pointers, other options.
func fieldsOf(t reflect.Type) (s fields, ok bool) {
	s, ok = appendFields(nil, t, nil)
	names := map[string]bool{}
	for _, f := range s {
		if names[f.name] {
			return nil, false
		}
		names[f.name] = true
	}
	return s, ok
}

// appendFields appends the fields of a struct that is embedded in another one at a path.
func appendFields(s fields, t reflect.Type, path []int) (_ fields, ok bool) {
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		index := append(path[:len(path):len(path)], f.Index...)
		switch {
		case f.Anonymous && !f.IsExported():
			return nil, false
		case !f.IsExported(), tag == "-":
			continue
		case f.Anonymous && name == "":
			if f.Type.Kind() != reflect.Struct {
				return nil, false
			}
			if s, ok = appendFields(s, f.Type, index); !ok {
				return nil, false
			}
			continue
		case name == "":
			name = f.Name
		}
		omit, known := omitOf(f.Type, options)
		if !known || !isName(name) {
			return nil, false
		}
		s = append(s, field{`"` + name + `":`, index, omit, appenderOf(f.Type)})
	}
	return s, true
}

// isName reports whether encoding/json accepts a name in a tag and escapes nothing in it.
func isName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("$-_./", r))
	})
}

// omitOf returns the condition under which a field is omitted, nil for never, and whether all options are
// known.
func omitOf(t reflect.Type, options string) (omit condition, known bool) {
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
			omit = func(v reflect.Value) bool { return first(v) || also(v) }
		}
	}
	return omit, true
}

// emptyOf returns the condition of omitempty, nil for never.
func emptyOf(t reflect.Type) condition {
	switch t.Kind() {
	case reflect.Struct:
		return nil
	case reflect.Pointer:
		return reflect.Value.IsNil
	case reflect.String:
		return func(v reflect.Value) bool { return v.String() == "" }
	case reflect.Map:
		return func(v reflect.Value) bool { return v.IsNil() || v.Len() == 0 } // IsNil is faster
	case reflect.Slice, reflect.Array:
		return func(v reflect.Value) bool { return v.Len() == 0 }
	case reflect.Bool:
		return func(v reflect.Value) bool { return !v.Bool() }
	case reflect.Int, reflect.Int32, reflect.Int64:
		return func(v reflect.Value) bool { return v.Int() == 0 }
	}
	return reflect.Value.IsZero
}

type zeroer interface{ IsZero() bool }

// zeroOf returns the condition of omitzero.
func zeroOf(t reflect.Type) condition {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return func(v reflect.Value) bool { return v.Addr().Interface().(*metav1.Time).IsZero() }
	case t.Kind() == reflect.Pointer && t.Implements(reflect.TypeFor[zeroer]()):
		return func(v reflect.Value) bool { return v.IsNil() || v.Interface().(zeroer).IsZero() }
	case reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()):
		return func(v reflect.Value) bool { return v.Addr().Interface().(zeroer).IsZero() }
	}
	return reflect.Value.IsZero
}
