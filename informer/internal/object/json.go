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

// jsonDecoder decodes JSON texts. It belongs to one goroutine.
type jsonDecoder struct {
	*interner
	tokens
	// The members and elements of the untyped objects and arrays that are not complete yet.
	members  []member
	elements []any
}

// typed decodes a text into v.
func (d *jsonDecoder) typed(b []byte, v reflect.Value) error {
	d.tokens = tokens{text: b}
	defer func() { d.tokens = tokens{} }() // b is the caller's
	return jsonPlanOf(v.Type())(d, v)
}

// jsonPlan decodes the next value into a v of one type, as the API machinery does: the case of names
// counts, unknown names are ignored, null leaves v unchanged.
type jsonPlan func(d *jsonDecoder, v reflect.Value) error

// jsonPlans maps each reflect.Type to its jsonPlan, for all decoders.
var jsonPlans sync.Map

func jsonPlanOf(t reflect.Type) jsonPlan {
	if known, ok := jsonPlans.Load(t); ok {
		return known.(jsonPlan)
	}
	// A type may contain itself: until its plan is complete, a plan that waits for it takes its place.
	plan := sync.OnceValue(func() jsonPlan { return newJSONPlan(t) })
	jsonPlans.Store(t, jsonPlan(func(d *jsonDecoder, v reflect.Value) error { return plan()(d, v) }))
	jsonPlans.Store(t, plan())
	return plan()
}

func newJSONPlan(t reflect.Type) jsonPlan {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return decodeTime
	case t == reflect.TypeFor[metav1.FieldsV1]():
		return decodeFieldsV1
	case reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()):
		return decodeByMethod
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return decodeByMachinery
	}
	switch t.Kind() {
	case reflect.Struct:
		return structPlan(t)
	case reflect.Pointer:
		return pointerPlan(t)
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return slicePlan(t)
		}
	case reflect.Map:
		if t.Key().Kind() == reflect.String &&
			!reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return mapPlan(t)
		}
	case reflect.String:
		return decodeString
	case reflect.Bool:
		return decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt
	}
	return decodeByMachinery
}

// decodeByMachinery decodes a value as the API machinery does, by calling it.
func decodeByMachinery(d *jsonDecoder, v reflect.Value) error {
	return utiljson.Unmarshal(d.raw(), v.Addr().Interface())
}

func decodeByMethod(d *jsonDecoder, v reflect.Value) error {
	return v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(d.raw())
}

// mismatch returns the error of a next value that does not fit into v.
func (d *jsonDecoder) mismatch(v reflect.Value) error {
	return fmt.Errorf("cannot decode JSON %.40q into %v", d.raw(), v.Type())
}

func decodeString(d *jsonDecoder, v reflect.Value) error {
	switch d.peek() {
	case '"':
		v.SetString(d.intern(d.string()))
	case 'n':
		d.skipLiteral()
	default:
		return d.mismatch(v)
	}
	return nil
}

// decodeDistinct is decodeString for strings that rarely repeat.
func decodeDistinct(d *jsonDecoder, v reflect.Value) error {
	switch d.peek() {
	case '"':
		v.SetString(string(d.string()))
	case 'n':
		d.skipLiteral()
	default:
		return d.mismatch(v)
	}
	return nil
}

func decodeBool(d *jsonDecoder, v reflect.Value) error {
	switch c := d.peek(); c {
	case 't', 'f':
		v.SetBool(c == 't')
	case 'n':
	default:
		return d.mismatch(v)
	}
	d.skipLiteral()
	return nil
}

func decodeInt(d *jsonDecoder, v reflect.Value) error {
	if d.null() {
		return nil
	}
	b := d.raw()
	n, err := strconv.ParseInt(string(b), 10, 64) // the text of no other kind of value parses
	if err != nil || v.OverflowInt(n) {
		return fmt.Errorf("cannot decode JSON %.40q into %v", b, v.Type())
	}
	v.SetInt(n)
	return nil
}

// decodeTime does what metav1.Time.UnmarshalJSON does, without a copy of the text.
func decodeTime(d *jsonDecoder, v reflect.Value) error {
	into := v.Addr().Interface().(*metav1.Time)
	switch d.peek() {
	case '"':
	case 'n':
		d.skipLiteral()
		*into = metav1.Time{}
		return nil
	default:
		return d.mismatch(v)
	}
	at, err := time.Parse(time.RFC3339, d.intern(d.string()))
	into.Time = at.Local()
	return err
}

// decodeFieldsV1 shares equal field sets.
func decodeFieldsV1(d *jsonDecoder, v reflect.Value) error {
	if d.null() {
		return nil
	}
	return d.fieldsV1(v.Addr().Interface().(*metav1.FieldsV1), d.raw(), (*metav1.FieldsV1).UnmarshalJSON)
}

func pointerPlan(t reflect.Type) jsonPlan {
	elem := jsonPlanOf(t.Elem())
	return func(d *jsonDecoder, v reflect.Value) error {
		if d.null() {
			v.SetZero()
			return nil
		}
		if v.IsNil() {
			v.Set(reflect.New(t.Elem()))
		}
		return elem(d, v.Elem())
	}
}

// longestGuess bounds the memory that a wrong guess of a length wastes.
const longestGuess = 64

// slicePlan makes slices of exactly their length. It guesses that a slice is as long as the previous
// one of its type.
func slicePlan(t reflect.Type) jsonPlan {
	elem := jsonPlanOf(t.Elem())
	var previous atomic.Int64
	return func(d *jsonDecoder, v reflect.Value) error {
		if d.null() {
			v.SetZero()
			return nil
		}
		if d.peek() != '[' {
			return d.mismatch(v)
		}
		n, guess := 0, min(int(previous.Load()), longestGuess)
		v.Set(reflect.MakeSlice(t, 0, 0))
		for more := d.enter(); more; more = d.more() {
			if n == v.Cap() {
				reserve(v, max(1, n, guess-n))
			}
			if err := elem(d, extend(v)); err != nil {
				return err
			}
			n++
		}
		if n < v.Cap() {
			reserve(v, 0)
		}
		previous.Store(int64(n))
		return nil
	}
}

func mapPlan(t reflect.Type) jsonPlan {
	elem := jsonPlanOf(t.Elem())
	var previous atomic.Int64
	return func(d *jsonDecoder, v reflect.Value) error {
		if d.null() {
			v.SetZero()
			return nil
		}
		if d.peek() != '{' {
			return d.mismatch(v)
		}
		if v.IsNil() {
			v.Set(reflect.MakeMapWithSize(t, min(int(previous.Load()), longestGuess)))
		}
		for more := d.enter(); more; more = d.more() {
			key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			key.SetString(d.intern(d.name()))
			if err := elem(d, value); err != nil {
				return err
			}
			v.SetMapIndex(key, value)
		}
		previous.Store(int64(v.Len()))
		return nil
	}
}
