package objectjson

import (
	"reflect"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// typeAppenders replace the MarshalJSON methods that most objects call.
var typeAppenders = map[reflect.Type]appender{
	reflect.TypeFor[metav1.Time]():        appendTime,
	reflect.TypeFor[metav1.FieldsV1]():    appendFieldsV1,
	reflect.TypeFor[resource.Quantity]():  appendQuantity,
	reflect.TypeFor[intstr.IntOrString](): appendIntOrString,
}

func appendTime(b []byte, v reflect.Value) ([]byte, error) {
	t := v.Addr().Interface().(*metav1.Time)
	if t.IsZero() {
		return append(b, null...), nil
	}
	return append(t.UTC().AppendFormat(append(b, '"'), time.RFC3339), '"'), nil
}

// appendFieldsV1 copies a set that structured-merge-diff wrote.
func appendFieldsV1(b []byte, v reflect.Value) ([]byte, error) {
	if raw := v.Addr().Interface().(*metav1.FieldsV1).GetRawBytes(); isFieldSet(raw) {
		return append(b, raw...), nil
	}
	return appendByLibrary(b, v)
}

// appendQuantity escapes nothing: the type has checked that a quantity is digits, a point, a sign and
// letters.
func appendQuantity(b []byte, v reflect.Value) ([]byte, error) {
	q := *v.Addr().Interface().(*resource.Quantity) // String changes it
	return append(append(append(b, '"'), q.String()...), '"'), nil
}

func appendIntOrString(b []byte, v reflect.Value) ([]byte, error) {
	x := v.Addr().Interface().(*intstr.IntOrString)
	switch x.Type {
	case intstr.Int:
		return strconv.AppendInt(b, int64(x.IntVal), 10), nil
	case intstr.String:
		return appendString(b, x.StrVal), nil
	}
	return appendByLibrary(b, v)
}
