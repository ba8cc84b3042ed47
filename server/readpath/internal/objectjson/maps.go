package objectjson

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// appendStringMap is the appender of the most frequent type of map.
func appendStringMap(b []byte, v reflect.Value) ([]byte, error) {
	m := *v.Addr().Interface().(*map[string]string)
	if m == nil {
		return append(b, null...), nil
	}
	var few [16]string // on the stack; most maps have fewer keys
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

// mapAppender appends maps whose keys are strings.
func mapAppender(t reflect.Type) appender {
	elem, values := appenderOf(t.Elem()), reflect.SliceOf(t.Elem())
	pool := sync.Pool{New: func() any {
		return &entries{key: reflect.New(t.Key()).Elem(), values: reflect.MakeSlice(values, 4, 4)}
	}}
	return func(b []byte, m reflect.Value) (_ []byte, err error) {
		if m.IsNil() {
			return append(b, null...), nil
		}
		e := pool.Get().(*entries)
		defer pool.Put(e)
		defer e.clear()
		b = append(b, '{')
		for i, one := range e.sorted(m) {
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

// entries are addressable copies of the entries of a map.
type entries struct {
	iter   reflect.MapIter
	key    reflect.Value // a variable
	values reflect.Value // a slice
	order  []entry
}

type entry struct {
	key   string
	value reflect.Value // an element of entries.values
}

// sorted returns the entries of a map, ordered by their keys.
func (e *entries) sorted(m reflect.Value) []entry {
	if n := m.Len(); n > e.values.Len() {
		e.values = reflect.MakeSlice(e.values.Type(), n, n)
	}
	e.iter.Reset(m)
	for i := 0; e.iter.Next(); i++ {
		e.key.SetIterKey(&e.iter)
		value := e.values.Index(i)
		value.SetIterValue(&e.iter)
		e.order = append(e.order, entry{e.key.String(), value})
	}
	slices.SortFunc(e.order, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return e.order
}

// clear drops all references to the map.
func (e *entries) clear() {
	e.iter.Reset(reflect.Value{})
	e.key.SetZero()
	e.values.Clear()
	clear(e.order)
	e.order = e.order[:0]
}
