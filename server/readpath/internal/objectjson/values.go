package objectjson

import (
	"reflect"
	"strconv"
)

const null = "null"

func appendBool(b []byte, v reflect.Value) ([]byte, error) {
	return strconv.AppendBool(b, v.Bool()), nil
}

func appendInt(b []byte, v reflect.Value) ([]byte, error) {
	return strconv.AppendInt(b, v.Int(), 10), nil
}

func appendText(b []byte, v reflect.Value) ([]byte, error) {
	return appendString(b, v.String()), nil
}

func pointerAppender(t reflect.Type) appender {
	elem := appenderOf(t.Elem())
	return func(b []byte, v reflect.Value) ([]byte, error) {
		if v.IsNil() {
			return append(b, null...), nil
		}
		return elem(b, v.Elem())
	}
}

func sliceAppender(t reflect.Type) appender {
	elem := appenderOf(t.Elem())
	return func(b []byte, v reflect.Value) (_ []byte, err error) {
		if v.IsNil() {
			return append(b, null...), nil
		}
		b = append(b, '[')
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = elem(b, v.Index(i)); err != nil {
				return b, err
			}
		}
		return append(b, ']'), nil
	}
}
