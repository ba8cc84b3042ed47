package item

import (
	"math/bits"
	"reflect"
	"time"
)

// structure is an estimate of what the metadata of an object needs beside its encoded bytes.
const structure = 1 << 10

// maxNodes bounds the parts of a value that are measured, as for one that refers to itself. Those behind it count
// nothing: an object of 1.5 MB, which etcd accepts, can have more, as of many small numbers.
const maxNodes = 1 << 18

// sizeOf estimates the value's bytes in memory: three times the size of its protobuf encoding and the structure, if the
// type reports that size, and else what the parts of the value need. Unexported fields are not read: what they refer
// to may change behind a lock, as a cache does.
func sizeOf(value any) int {
	if sized, ok := value.(interface{ Size() int }); ok {
		return structure + 3*sized.Size()
	}
	m := measure{nodes: maxNodes}
	m.boxed(value)
	return structure + m.bytes
}

// measure adds up what a value refers to.
type measure struct{ bytes, nodes int }

const mapBytes = 48 // without its slots

// slots returns the number of slots of a map with n entries: groups have eight, and tables, which double, are at most
// 7/8 full.
func slots(n int) int {
	if n <= 8 {
		return 8
	}
	return 1 << bits.Len(uint(n*8/7))
}

// boxed adds the value of an interface. Unstructured objects consist of the first types.
func (m *measure) boxed(value any) {
	const word = 8
	if m.nodes--; m.nodes < 0 {
		return
	}
	switch v := value.(type) {
	case nil, bool:
	case string:
		m.bytes += 2*word + len(v)
	case int64, float64:
		m.bytes += word
	case map[string]any:
		m.bytes += mapBytes + slots(len(v))*4*word
		for key, element := range v {
			m.bytes += len(key)
			m.boxed(element)
		}
	case []any:
		m.bytes += 3*word + cap(v)*2*word
		for _, element := range v {
			m.boxed(element)
		}
	default:
		of := reflect.ValueOf(value)
		if of.Kind() != reflect.Pointer {
			m.bytes += int(of.Type().Size())
		}
		m.add(of)
	}
}

// add adds what a value refers to, without the value's own bytes.
func (m *measure) add(v reflect.Value) {
	if m.nodes--; m.nodes < 0 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		m.bytes += v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			m.bytes += int(v.Type().Elem().Size())
			m.add(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			m.boxed(v.Interface())
		}
	case reflect.Slice:
		m.bytes += v.Cap() * int(v.Type().Elem().Size())
		m.addElements(v)
	case reflect.Array:
		m.addElements(v)
	case reflect.Map:
		of := v.Type()
		if of == reflect.TypeFor[map[string]any]() {
			m.boxed(v.Interface()) // without reflection
			return
		}
		m.bytes += mapBytes + slots(v.Len())*int(of.Key().Size()+of.Elem().Size())
		for all := v.MapRange(); all.Next(); {
			m.add(all.Key())
			m.add(all.Value())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return // the location is shared
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanInterface() { // it is exported
				m.add(field)
			}
		}
	}
}

// addElements adds what the elements of a slice or an array refer to.
func (m *measure) addElements(v reflect.Value) {
	switch v.Type().Elem().Kind() {
	case reflect.String, reflect.Pointer, reflect.Interface, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		for i := range v.Len() {
			m.add(v.Index(i))
		}
	}
}
