package apiserver

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// timeField is a time in an object: exactly one of its fields is set.
type timeField struct {
	seconds *metav1.Time
	micro   *metav1.MicroTime
}

func (f timeField) get() time.Time {
	if f.seconds != nil {
		return f.seconds.Time
	}
	return f.micro.Time
}

func (f timeField) set(t time.Time) {
	if f.seconds != nil {
		f.seconds.Time = t
	} else {
		f.micro.Time = t
	}
}

var (
	secondsType       = reflect.TypeFor[metav1.Time]()
	microType         = reflect.TypeFor[metav1.MicroTime]()
	managedFieldsType = reflect.TypeFor[[]metav1.ManagedFieldsEntry]()
)

// timesOf returns the times of an object that are set, except those of managed fields.
func timesOf(o runtime.Object) []timeField {
	var found []timeField
	var visit func(reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Type() {
		case secondsType:
			if t := v.Addr().Interface().(*metav1.Time); !t.IsZero() {
				found = append(found, timeField{seconds: t})
			}
			return
		case microType:
			if t := v.Addr().Interface().(*metav1.MicroTime); !t.IsZero() {
				found = append(found, timeField{micro: t})
			}
			return
		case managedFieldsType:
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				visit(v.Elem())
			}
		case reflect.Struct:
			for _, i := range fieldsWithTimes(v.Type()) {
				visit(v.Field(i))
			}
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i))
			}
		}
	}
	visit(reflect.ValueOf(o))
	return found
}

// withTimes caches fieldsWithTimes by type.
var withTimes sync.Map

// fieldsWithTimes returns the indexes of a struct's exported fields that may contain times.
func fieldsWithTimes(t reflect.Type) []int {
	if known, ok := withTimes.Load(t); ok {
		return known.([]int)
	}
	var found []int
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && holdsTimes(f.Type) {
			found = append(found, i)
		}
	}
	withTimes.Store(t, found)
	return found
}

// holdsTimes reports whether values of a type may contain times.
func holdsTimes(t reflect.Type) bool {
	seen := map[reflect.Type]bool{}
	var holds func(reflect.Type) bool
	holds = func(t reflect.Type) bool {
		if t == secondsType || t == microType {
			return true
		}
		if seen[t] || t == managedFieldsType {
			return false
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice:
			return holds(t.Elem())
		case reflect.Struct:
			for f := range t.Fields() {
				if f.IsExported() && holds(f.Type) {
					return true
				}
			}
		}
		return false
	}
	return holds(t)
}
