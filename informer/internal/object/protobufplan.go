package object

import (
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planner makes the messages of types that may refer to each other.
type planner map[reflect.Type]*message

// message returns the plan of a struct, nil if its tags do not describe it.
func (p planner) message(t reflect.Type) *message {
	if m, ok := p[t]; ok {
		return m
	}
	m := &message{}
	p[t] = m
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("protobuf")
		if tag == "" && (f.Type == reflect.TypeFor[metav1.TypeMeta]() || f.Type.Kind() == reflect.Interface) {
			continue // the envelope contains it, or only memory does
		}
		number, ok := numberOf(tag)
		if !ok || !f.IsExported() {
			p[t] = nil
			return nil
		}
		planned := p.field(f.Type)
		if planned == nil {
			p[t] = nil
			return nil
		}
		if distinct[t.Name()+"."+f.Name] {
			planned.decode = decodeDistinctString
		}
		planned.index, planned.number = i, number
		for len(m.fields) <= int(number) {
			m.fields = append(m.fields, nil)
		}
		m.fields[number] = planned
	}
	return m
}

// distinct are the fields whose strings rarely repeat: they are not interned.
var distinct = map[string]bool{
	"ObjectMeta.Name": true, "ObjectMeta.UID": true, "ObjectMeta.ResourceVersion": true,
	"PodStatus.PodIP": true, "PodIP.IP": true, "ContainerStatus.ContainerID": true,
}

// highestNumber bounds the numbers of fields: no type of the API has that many.
const highestNumber = 1 << 10

// numberOf parses a tag like "bytes,1,opt,name=metadata".
func numberOf(tag string) (protowire.Number, bool) {
	parts := strings.SplitN(tag, ",", 3)
	if len(parts) < 2 {
		return 0, false
	}
	number, err := strconv.Atoi(parts[1])
	return protowire.Number(number), err == nil && number > 0 && number < highestNumber
}

// field returns the plan of a field of a type, nil if the type is unknown.
func (p planner) field(t reflect.Type) *field {
	if f := p.singular(t); f != nil {
		return f
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.pointer(t)
	case reflect.Slice:
		return p.slice(t)
	case reflect.Map:
		return p.mapOf(t)
	}
	return nil
}

type unmarshaler interface{ Unmarshal([]byte) error }

// singular returns the plan of a field that is neither optional nor repeated.
func (p planner) singular(t reflect.Type) *field {
	if t == reflect.TypeFor[metav1.FieldsV1]() {
		return &field{decode: decodeFieldsV1Message}
	}
	switch t.Kind() {
	case reflect.String:
		return &field{decode: decodeStringBytes}
	case reflect.Bool:
		return &field{set: func(v reflect.Value, n uint64) { v.SetBool(n != 0) }}
	case reflect.Int32:
		return &field{set: func(v reflect.Value, n uint64) { v.SetInt(int64(int32(n))) }}
	case reflect.Int64:
		return &field{set: func(v reflect.Value, n uint64) { v.SetInt(int64(n)) }}
	case reflect.Struct:
		if m := p.message(t); m != nil {
			return &field{decode: func(in *interner, v reflect.Value, value, _ []byte) error { return m.decode(in, v, value) }}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &field{decode: decodeBytes}
		}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]()) {
		return &field{decode: decodeUnmarshaler}
	}
	return nil
}

func decodeStringBytes(in *interner, v reflect.Value, value, _ []byte) error {
	v.SetString(in.intern(value))
	return nil
}

func decodeDistinctString(_ *interner, v reflect.Value, value, _ []byte) error {
	v.SetString(string(value))
	return nil
}

func decodeBytes(_ *interner, v reflect.Value, value, _ []byte) error {
	v.SetBytes(append(make([]byte, 0, len(value)), value...))
	return nil
}

// decodeFieldsV1Message shares equal field sets.
func decodeFieldsV1Message(in *interner, v reflect.Value, value, _ []byte) error {
	return in.fieldsV1(v.Addr().Interface().(*metav1.FieldsV1), value, (*metav1.FieldsV1).Unmarshal)
}

// decodeUnmarshaler calls the generated code.
func decodeUnmarshaler(_ *interner, v reflect.Value, value, _ []byte) error {
	return v.Addr().Interface().(unmarshaler).Unmarshal(value)
}

// pointer returns the plan of an optional field.
func (p planner) pointer(t reflect.Type) *field {
	to := p.singular(t.Elem())
	if to == nil {
		return nil
	}
	target := func(v reflect.Value) reflect.Value {
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return v.Elem()
	}
	f := &field{}
	if to.decode != nil {
		f.decode = func(in *interner, v reflect.Value, value, _ []byte) error {
			return to.decode(in, target(v), value, nil)
		}
	}
	if to.set != nil {
		f.set = func(v reflect.Value, n uint64) { to.set(target(v), n) }
	}
	return f
}

// slice returns the plan of a repeated field.
func (p planner) slice(t reflect.Type) *field {
	elem := p.field(t.Elem())
	if elem == nil {
		return nil
	}
	f := &field{}
	if elem.decode != nil {
		f.decode = func(in *interner, v reflect.Value, value, rest []byte) error {
			if v.Len() == v.Cap() {
				reserve(v, 1+repeats(f.number, rest))
			}
			return elem.decode(in, extend(v), value, nil)
		}
		return f
	}
	f.set = func(v reflect.Value, n uint64) {
		if v.Len() == v.Cap() {
			v.Grow(1)
		}
		elem.set(extend(v), n)
	}
	f.decode = func(_ *interner, v reflect.Value, packed, _ []byte) error {
		for len(packed) > 0 {
			number, n := protowire.ConsumeVarint(packed)
			if n < 0 {
				return protowire.ParseError(n)
			}
			f.set(v, number)
			packed = packed[n:]
		}
		return nil
	}
	return f
}

// reserve sets the capacity to exactly n more elements than the length.
func reserve(v reflect.Value, n int) {
	grown := reflect.MakeSlice(v.Type(), v.Len(), v.Len()+n)
	reflect.Copy(grown, v)
	v.Set(grown)
}

// extend makes a slice one element longer, within its capacity, and returns that element.
func extend(v reflect.Value) reflect.Value {
	n := v.Len()
	v.SetLen(n + 1)
	return v.Index(n)
}

// mapOf returns the plan of a map: each entry is a message of a key and a value.
func (p planner) mapOf(t reflect.Type) *field {
	elem := p.field(t.Elem())
	if elem == nil || t.Key().Kind() != reflect.String {
		return nil
	}
	elem.index = 1
	entry := &message{fields: []*field{1: {index: 0, decode: decodeStringBytes}, 2: elem}}
	entryType := reflect.StructOf([]reflect.StructField{{Name: "Key", Type: t.Key()}, {Name: "Value", Type: t.Elem()}})
	f := &field{}
	f.decode = func(in *interner, v reflect.Value, value, rest []byte) error {
		if v.IsNil() {
			v.Set(reflect.MakeMapWithSize(t, 1+repeats(f.number, rest)))
		}
		e := reflect.New(entryType).Elem()
		if t.Elem().Kind() == reflect.Slice { // empty and not nil if the entry has no value, as in the generated code
			e.Field(1).Set(reflect.MakeSlice(t.Elem(), 0, 0))
		}
		if err := entry.decode(in, e, value); err != nil {
			return err
		}
		v.SetMapIndex(e.Field(0), e.Field(1))
		return nil
	}
	return f
}
