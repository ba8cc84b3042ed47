package object

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// reader reads a value of one type from JSON, as the API machinery does: names
// count with their case, unknown ones are passed over, null leaves what is there.
type reader func(r *tree, t *text, v reflect.Value) error

// readers are known for all that decode: reflect.Type to reader.
var readers sync.Map

// readerOf finds out how a type is read.
func readerOf(t reflect.Type) reader {
	if known, ok := readers.Load(t); ok {
		return known.(reader)
	}
	// A type may contain itself: until it is known, it is looked up again.
	var once sync.Once
	var made reader
	readers.Store(t, reader(func(r *tree, text *text, v reflect.Value) error {
		once.Do(func() { made = newReader(t) })
		return made(r, text, v)
	}))
	once.Do(func() { made = newReader(t) })
	readers.Store(t, made)
	return made
}

func newReader(t reflect.Type) reader {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return readTime
	case t == reflect.TypeFor[metav1.FieldsV1]() && keepsBytes:
		return readFields
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return readItself
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return readElse
	}
	switch t.Kind() {
	case reflect.Struct:
		return structReader(t)
	case reflect.Pointer:
		return pointerReader(t)
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return sliceReader(t)
		}
	case reflect.Map:
		if t.Key().Kind() == reflect.String && !reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return mapReader(t)
		}
	case reflect.String:
		return readText
	case reflect.Bool:
		return readBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return readInt
	}
	return readElse
}

// readElse leaves a value to the API machinery.
func readElse(_ *tree, t *text, v reflect.Value) error {
	return utiljson.Unmarshal(t.raw(), v.Addr().Interface())
}

func readItself(_ *tree, t *text, v reflect.Value) error {
	return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(t.raw())
}

func unfit(t *text, v reflect.Value) error {
	return fmt.Errorf("JSON %.40q is no %v", t.raw(), v.Type())
}

// null passes a null, and reports whether it did.
func (t *text) null() bool {
	if t.peek() != 'n' {
		return false
	}
	t.passLiteral()
	return true
}

func readText(r *tree, t *text, v reflect.Value) error {
	if t.null() {
		return nil
	}
	if t.peek() != '"' {
		return unfit(t, v)
	}
	v.SetString(r.strings.string(t.quoted()))
	return nil
}

func readUniqueText(_ *tree, t *text, v reflect.Value) error {
	if t.null() {
		return nil
	}
	if t.peek() != '"' {
		return unfit(t, v)
	}
	v.SetString(string(t.quoted()))
	return nil
}

func readBool(_ *tree, t *text, v reflect.Value) error {
	switch t.peek() {
	case 'n':
	case 't', 'f':
		v.SetBool(t.peek() == 't')
	default:
		return unfit(t, v)
	}
	t.passLiteral()
	return nil
}

func readInt(_ *tree, t *text, v reflect.Value) error {
	if t.null() {
		return nil
	}
	at := t.at
	switch t.peek() {
	case '"', '{', '[', 't', 'f':
		return unfit(t, v)
	}
	n, err := strconv.ParseInt(string(t.literal()), 10, 64)
	if err != nil || v.OverflowInt(n) {
		t.at = at
		return unfit(t, v)
	}
	v.SetInt(n)
	return nil
}

// readTime is metav1.Time's own reading, without a copy of the text.
func readTime(r *tree, t *text, v reflect.Value) error {
	into := v.Addr().Interface().(*metav1.Time)
	if t.null() {
		*into = metav1.Time{}
		return nil
	}
	if t.peek() != '"' {
		return unfit(t, v)
	}
	at, err := time.Parse(time.RFC3339, r.strings.string(t.quoted()))
	into.Time = at.Local()
	return err
}

// readFields shares what managers have fields of.
func readFields(r *tree, t *text, v reflect.Value) error {
	if t.null() {
		return nil
	}
	return readManagedFields(r.interner, v.FieldByIndex(rawFields.Index), t.raw(), nil)
}

func pointerReader(t reflect.Type) reader {
	to := readerOf(t.Elem())
	return func(r *tree, text *text, v reflect.Value) error {
		if text.null() {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return to(r, text, v.Elem())
	}
}

// sliceReader makes slices as long as they have to be: the last one of a field
// tells how long the next will be.
func sliceReader(t reflect.Type) reader {
	of := readerOf(t.Elem())
	var last atomic.Int64
	return func(r *tree, text *text, v reflect.Value) error {
		if text.null() {
			v.SetZero()
			return nil
		}
		if text.peek() != '[' {
			return unfit(text, v)
		}
		n, room := 0, int(last.Load())
		v.Set(reflect.MakeSlice(t, 0, 0))
		for more := text.enter(); more; more = text.more() {
			if n == v.Cap() {
				reserve(v, max(1, n, min(room, longestGuess)-n))
			}
			if err := of(r, text, extend(v)); err != nil {
				return err
			}
			n++
		}
		if n < v.Cap() {
			reserve(v, 0)
		}
		last.Store(int64(n))
		return nil
	}
}

// longestGuess bounds the memory that a guess can waste.
const longestGuess = 64

func mapReader(t reflect.Type) reader {
	of := readerOf(t.Elem())
	var last atomic.Int64
	return func(r *tree, text *text, v reflect.Value) error {
		if text.null() {
			v.SetZero()
			return nil
		}
		if text.peek() != '{' {
			return unfit(text, v)
		}
		if v.IsNil() {
			v.Set(reflect.MakeMapWithSize(t, min(int(last.Load()), longestGuess)))
		}
		for more := text.enter(); more; more = text.more() {
			key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			key.SetString(r.strings.string(text.name()))
			if err := of(r, text, value); err != nil {
				return err
			}
			v.SetMapIndex(key, value)
		}
		last.Store(int64(v.Len()))
		return nil
	}
}
