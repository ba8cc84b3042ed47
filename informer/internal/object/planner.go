package object

import (
	"reflect"
	"strconv"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// planner finds out how types are read that refer to each other.
type planner map[reflect.Type]*message

// message is how a struct is read, nil if its tags don't say it.
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
			continue // it is in the envelope, or only in memory
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
		switch {
		case unique[t.Name()+"."+f.Name]:
			planned.read = readUnique
		case t == reflect.TypeFor[metav1.FieldsV1]():
			planned.read = readManagedFields
		}
		planned.index, planned.number = i, number
		for len(m.fields) <= int(number) {
			m.fields = append(m.fields, nil)
		}
		m.fields[number] = planned
	}
	return m
}

// unique are strings that hardly ever repeat.
var unique = map[string]bool{
	"ObjectMeta.Name": true, "ObjectMeta.UID": true, "ObjectMeta.ResourceVersion": true,
	"PodStatus.PodIP": true, "PodIP.IP": true, "ContainerStatus.ContainerID": true,
}

// highestNumber bounds the numbers of fields: no type of the API has that many.
const highestNumber = 1 << 10

// numberOf reads a tag like "bytes,1,opt,name=metadata".
func numberOf(tag string) (protowire.Number, bool) {
	parts := strings.SplitN(tag, ",", 3)
	if len(parts) < 2 {
		return 0, false
	}
	number, err := strconv.Atoi(parts[1])
	return protowire.Number(number), err == nil && number > 0 && number < highestNumber
}

// field is how a field of a type is read, nil if that is not known.
func (p planner) field(t reflect.Type) *field {
	if f := p.single(t); f != nil {
		return f
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.pointer(t)
	case reflect.Slice:
		return p.slice(t)
	case reflect.Map:
		return p.dictionary(t)
	}
	return nil
}

type unmarshaler interface{ Unmarshal([]byte) error }

// single is how a value is read that is neither optional nor repeated.
func (p planner) single(t reflect.Type) *field {
	switch t.Kind() {
	case reflect.String:
		return &field{read: readString}
	case reflect.Bool:
		return &field{set: func(v reflect.Value, n uint64) { v.SetBool(n != 0) }}
	case reflect.Int32:
		return &field{set: func(v reflect.Value, n uint64) { v.SetInt(int64(int32(n))) }}
	case reflect.Int64:
		return &field{set: func(v reflect.Value, n uint64) { v.SetInt(int64(n)) }}
	case reflect.Struct:
		if m := p.message(t); m != nil {
			return &field{read: func(in *interner, v reflect.Value, value, _ []byte) error { return m.decode(in, v, value) }}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &field{read: readBytes}
		}
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[unmarshaler]()) {
		return &field{read: readOwn}
	}
	return nil
}

func readString(in *interner, v reflect.Value, value, _ []byte) error {
	v.SetString(in.strings.string(value))
	return nil
}

func readUnique(_ *interner, v reflect.Value, value, _ []byte) error {
	v.SetString(string(value))
	return nil
}

func readBytes(_ *interner, v reflect.Value, value, _ []byte) error {
	v.SetBytes(append(make([]byte, 0, len(value)), value...))
	return nil
}

// rawFields is where a FieldsV1 keeps its bytes. It does not in programs that are
// built with the tag fieldsv1string, which make one string of equal ones themselves.
var rawFields, keepsBytes = reflect.TypeFor[metav1.FieldsV1]().FieldByName("Raw")

// readManagedFields makes one of equal bytes, unless a transform may change them. Nobody else
// may change them, nor any other part of an object in an informer.
func readManagedFields(in *interner, v reflect.Value, value, rest []byte) error {
	if in.fields == nil {
		return readBytes(in, v, value, rest)
	}
	shared := in.fields.string(value)
	v.SetBytes(unsafe.Slice(unsafe.StringData(shared), len(shared)))
	return nil
}

// readOwn lets the type read itself.
func readOwn(_ *interner, v reflect.Value, value, _ []byte) error {
	return v.Addr().Interface().(unmarshaler).Unmarshal(value)
}

// pointer is how an optional value is read.
func (p planner) pointer(t reflect.Type) *field {
	to := p.single(t.Elem())
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
	if to.read != nil {
		f.read = func(in *interner, v reflect.Value, value, _ []byte) error {
			return to.read(in, target(v), value, nil)
		}
	}
	if to.set != nil {
		f.set = func(v reflect.Value, n uint64) { to.set(target(v), n) }
	}
	return f
}

// slice is how repeated values are read.
func (p planner) slice(t reflect.Type) *field {
	of := p.field(t.Elem())
	if of == nil {
		return nil
	}
	f := &field{}
	if of.read != nil {
		f.read = func(in *interner, v reflect.Value, value, rest []byte) error {
			if v.Len() == v.Cap() {
				reserve(v, 1+repeats(f.number, rest))
			}
			return of.read(in, extend(v), value, nil)
		}
		return f
	}
	f.set = func(v reflect.Value, n uint64) {
		if v.Len() == v.Cap() {
			v.Grow(1)
		}
		of.set(extend(v), n)
	}
	f.read = func(_ *interner, v reflect.Value, packed, _ []byte) error {
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

// reserve makes room for exactly n more elements.
func reserve(v reflect.Value, n int) {
	grown := reflect.MakeSlice(v.Type(), v.Len(), v.Len()+n)
	reflect.Copy(grown, v)
	v.Set(grown)
}

// extend makes a slice one longer, which it has room for, and returns what was won.
func extend(v reflect.Value) reflect.Value {
	n := v.Len()
	v.SetLen(n + 1)
	return v.Index(n)
}

// dictionary is how maps are read: each entry is a message of a key and a value.
func (p planner) dictionary(t reflect.Type) *field {
	of := p.field(t.Elem())
	if of == nil || t.Key().Kind() != reflect.String {
		return nil
	}
	of.index = 1
	entry := &message{fields: []*field{1: {index: 0, read: readString}, 2: of}}
	entryType := reflect.StructOf([]reflect.StructField{{Name: "Key", Type: t.Key()}, {Name: "Value", Type: t.Elem()}})
	f := &field{}
	f.read = func(in *interner, v reflect.Value, value, rest []byte) error {
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
