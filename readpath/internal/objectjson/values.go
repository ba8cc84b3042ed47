package objectjson

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

const null = "null"

func appendBool(b []byte, p unsafe.Pointer) ([]byte, error) {
	return strconv.AppendBool(b, *(*bool)(p)), nil
}

func appendInt[T int | int32 | int64](b []byte, p unsafe.Pointer) ([]byte, error) {
	return strconv.AppendInt(b, int64(*(*T)(p)), 10), nil
}

func appendText(b []byte, p unsafe.Pointer) ([]byte, error) {
	return appendString(b, *(*string)(p)), nil
}

func pointerTo(elem appender) appender {
	return func(b []byte, p unsafe.Pointer) ([]byte, error) {
		to := *(*unsafe.Pointer)(p)
		if to == nil {
			return append(b, null...), nil
		}
		return elem(b, to)
	}
}

// slice is how Go lays a slice out.
type slice struct {
	data     unsafe.Pointer
	len, cap int
}

func sliceOf(t reflect.Type) appender {
	elem, size := appenderOf(t), t.Size()
	return func(b []byte, p unsafe.Pointer) (_ []byte, err error) {
		s := (*slice)(p)
		if s.data == nil {
			return append(b, null...), nil
		}
		b = append(b, '[')
		for i := range s.len {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = elem(b, unsafe.Add(s.data, uintptr(i)*size)); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
}

// appendTexts is mapOf for the most frequent map.
func appendTexts(b []byte, p unsafe.Pointer) ([]byte, error) {
	m := *(*map[string]string)(p)
	if m == nil {
		return append(b, null...), nil
	}
	var few [16]string // in most maps: on the stack
	keys := slices.AppendSeq(few[:0], maps.Keys(m))
	slices.Sort(keys)
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, key), ':')
		b = appendString(b, m[key])
	}
	return append(b, '}'), nil
}

// entries are a map's while it is encoded.
type entries struct {
	iter   reflect.MapIter
	key    reflect.Value // a variable
	values reflect.Value // a slice
	order  []entry
}

type entry struct {
	key   string
	value unsafe.Pointer // into values
}

// mapOf is for maps whose keys are strings.
func mapOf(t reflect.Type) appender {
	elem, values := appenderOf(t.Elem()), reflect.SliceOf(t.Elem())
	pool := sync.Pool{New: func() any {
		return &entries{key: reflect.New(t.Key()).Elem(), values: reflect.MakeSlice(values, 4, 4)}
	}}
	return func(b []byte, p unsafe.Pointer) (_ []byte, err error) {
		m := reflect.NewAt(t, p).Elem()
		if m.IsNil() {
			return append(b, null...), nil
		}
		e := pool.Get().(*entries)
		defer pool.Put(e)
		defer e.clear()
		b = append(b, '{')
		for i, one := range e.of(m) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, one.key), ':')
			if b, err = elem(b, one.value); err != nil {
				return b, err
			}
		}
		return append(b, '}'), nil
	}
}

// of returns a map's entries by their keys.
func (e *entries) of(m reflect.Value) []entry {
	if n := m.Len(); n > e.values.Len() {
		e.values = reflect.MakeSlice(e.values.Type(), n, n)
	}
	e.iter.Reset(m)
	for i := 0; e.iter.Next(); i++ {
		e.key.SetIterKey(&e.iter)
		value := e.values.Index(i)
		value.SetIterValue(&e.iter)
		e.order = append(e.order, entry{e.key.String(), value.Addr().UnsafePointer()})
	}
	slices.SortFunc(e.order, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return e.order
}

// clear lets go of the map.
func (e *entries) clear() {
	e.iter.Reset(reflect.Value{})
	e.key.SetZero()
	e.values.Clear()
	clear(e.order)
	e.order = e.order[:0]
}
