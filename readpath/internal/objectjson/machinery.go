package objectjson

import (
	"reflect"
	"strconv"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// machinery are the API machinery's types that encode themselves and that are known here.
var machinery = map[reflect.Type]appender{
	reflect.TypeFor[metav1.Time]():        appendTime,
	reflect.TypeFor[metav1.FieldsV1]():    appendFieldsV1,
	reflect.TypeFor[resource.Quantity]():  appendQuantity,
	reflect.TypeFor[intstr.IntOrString](): appendIntOrString,
}

func appendTime(b []byte, p unsafe.Pointer) ([]byte, error) {
	t := (*metav1.Time)(p)
	if t.IsZero() {
		return append(b, null...), nil
	}
	return append(t.UTC().AppendFormat(append(b, '"'), time.RFC3339), '"'), nil
}

// appendFieldsV1 appends the set as it is, if it is what structured-merge-diff writes.
func appendFieldsV1(b []byte, p unsafe.Pointer) ([]byte, error) {
	if raw := (*metav1.FieldsV1)(p).GetRawBytes(); isSet(raw) {
		return append(b, raw...), nil
	}
	return elseOf(reflect.TypeFor[metav1.FieldsV1]())(b, p)
}

// appendQuantity has digits, a point, a sign and letters, as the type has checked.
func appendQuantity(b []byte, p unsafe.Pointer) ([]byte, error) {
	q := *(*resource.Quantity)(p) // String changes it
	return append(append(append(b, '"'), q.String()...), '"'), nil
}

func appendIntOrString(b []byte, p unsafe.Pointer) ([]byte, error) {
	x := (*intstr.IntOrString)(p)
	switch x.Type {
	case intstr.Int:
		return strconv.AppendInt(b, int64(x.IntVal), 10), nil
	case intstr.String:
		return appendString(b, x.StrVal), nil
	}
	return elseOf(reflect.TypeFor[intstr.IntOrString]())(b, p)
}

// deepest is how deep a set may be that is looked at here: encoding/json has a bound, too.
const deepest = 100

// isSet reports whether JSON is of objects alone, without a space, and their names of characters that
// encoding/json leaves as they are. Everything else is encoding/json's.
func isSet(raw []byte) bool {
	depth := 0
	for i := 0; i < len(raw) && raw[i] == '{'; { // an object begins
		if depth++; depth > deepest {
			return false
		}
		i++
		if i < len(raw) && raw[i] == '}' { // and ends, as do those whose last member it is
			for ; i < len(raw) && raw[i] == '}'; i++ {
				if depth--; depth == 0 {
					return i == len(raw)-1
				}
			}
			if i == len(raw) || raw[i] != ',' {
				return false
			}
			i++
		}
		if i = pastName(raw, i); i < 0 {
			return false
		}
	}
	return false
}

// pastName returns where what follows a name and its colon begins, or -1.
func pastName(raw []byte, i int) int {
	if i >= len(raw) || raw[i] != '"' {
		return -1
	}
	for i++; i < len(raw); i++ {
		c := raw[i]
		if plain[c] {
			continue
		}
		switch c {
		case '"':
			if i+2 < len(raw) && raw[i+1] == ':' && raw[i+2] == '{' {
				return i + 2
			}
			return -1
		case '\\':
			if i++; i == len(raw) || raw[i] != '"' && raw[i] != '\\' {
				return -1
			}
		default:
			return -1
		}
	}
	return -1
}
