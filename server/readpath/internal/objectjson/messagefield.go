package objectjson

import (
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

func newMessageFields(t reflect.Type) *messageFields {
	all := &messageFields{}
	for f := range t.Fields() {
		number := fieldNumber(f.Tag.Get("protobuf"))
		field := messageField{number: number, wire: wireOf(f.Type)}
		if f.IsExported() {
			field.describe(f)
		}
		if field.append == nil {
			field.append = mustDecode
		}
		all.all = append(all.all, field)
		for len(all.byNumber) <= int(number) {
			all.byNumber = append(all.byNumber, -1)
		}
		if number > 0 {
			all.byNumber[number] = len(all.all) - 1
		}
	}
	return all
}

// mustDecode is the append of fields that cannot be encoded from messages.
func mustDecode(_ *partStack, b []byte, next byte, _ part) ([]byte, byte, error) {
	return b, next, errDecode
}

// fieldNumber returns the number in the protobuf tag of a field, 0 if messages do not have the field. The tag also
// names an encoding, which is not the one of the Marshal method in hundreds of fields: the tags of a pod's priority and
// of an endpoint's ready say bytes.
func fieldNumber(tag string) protowire.Number {
	_, rest, _ := strings.Cut(tag, ",")
	text, _, _ := strings.Cut(rest, ",")
	number, _ := strconv.Atoi(text)
	return protowire.Number(number)
}

// wireOf returns how Marshal methods encode the values of a type, those of a slice one by one. It is negative for a
// type that no field in messages has.
func wireOf(t reflect.Type) protowire.Type {
	switch kind := t.Kind(); {
	case isDecoded(t):
		return protowire.BytesType
	case kind == reflect.Pointer, kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return wireOf(t.Elem())
	case kind == reflect.Bool, kind == reflect.Int32, kind == reflect.Int64:
		return protowire.VarintType
	case kind == reflect.String, kind == reflect.Slice, kind == reflect.Struct, kind == reflect.Map:
		return protowire.BytesType
	}
	return -1
}

// describe sets how a field is encoded. It leaves append nil if the field must be decoded.
func (m *messageField) describe(f reflect.StructField) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-":
		m.append = func(_ *partStack, b []byte, next byte, _ part) ([]byte, byte, error) { return b, next, nil }
		return
	case name == "" && f.Anonymous:
		m.embed(f.Type)
		return
	case name == "":
		name = f.Name
	}
	omit, known := omitOf(f.Type, options)
	if !known || !isName(name) {
		m.embedded = true // so that messages without it are decoded, too
		return
	}
	m.name = `"` + name + `":`
	zero := reflect.New(f.Type).Elem()
	if omit == nil || !omit(zero) {
		absent, err := appenderOf(f.Type)([]byte(m.name), zero)
		if err != nil {
			m.embedded = true
			return
		}
		m.absent = string(absent)
	}
	if isDecoded(f.Type) {
		m.append = m.decoded(f.Type, omit)
		return
	}
	if value := m.value(f.Type); value != nil && !strings.Contains(options, "omitzero") {
		m.append = m.encoded(value, omitsEmpty(f.Type, omit))
	}
}

// embed describes a struct whose fields become those of the struct around it.
func (m *messageField) embed(t reflect.Type) {
	m.embedded = true
	if t.Kind() != reflect.Struct || m.number > 0 && m.wire != protowire.BytesType {
		return
	}
	fields := messageFieldsOf(t)
	m.append = func(s *partStack, b []byte, next byte, p part) ([]byte, byte, error) {
		return fields().appendAll(s, b, next, p.bytes)
	}
}

// value returns the appender of the field's values, nil if there is none.
func (m *messageField) value(t reflect.Type) partAppender {
	if !isDecoded(t) && t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		m.repeated = true
		return repeatedAppender(t.Elem(), m.wire)
	}
	if !isDecoded(t) && t.Kind() == reflect.Map && t.Key().Kind() == reflect.String && m.wire == protowire.BytesType {
		m.repeated = true
		return entriesAppender(t.Elem())
	}
	return valueAppender(t, m.wire)
}

// encoded returns the append of a field whose values are encoded from their messages.
func (m *messageField) encoded(value partAppender, omit func(part) bool) func(*partStack, []byte, byte, part) (
	[]byte, byte, error) {
	name := m.name
	return func(s *partStack, b []byte, next byte, p part) (_ []byte, _ byte, err error) {
		if omit != nil && omit(p) {
			return b, next, nil
		}
		b, err = value(s, append(append(b, next), name...), p)
		return b, ',', err
	}
}

// decoded returns the append of a field whose value is decoded.
func (m *messageField) decoded(t reflect.Type,
	omit condition) func(*partStack, []byte, byte, part) ([]byte, byte, error) {
	name, values, encode := m.name, newDecodedValues(t), appenderOf(t)
	if values == nil || m.wire != protowire.BytesType {
		return nil
	}
	return func(_ *partStack, b []byte, next byte, p part) (_ []byte, _ byte, err error) {
		v, err := values.get(p.bytes)
		defer values.put(v)
		if err != nil || omit != nil && omit(v.value) {
			return b, next, err
		}
		b, err = encode(append(append(b, next), name...), v.value)
		return b, ',', err
	}
}

// omitsEmpty returns the condition of omitempty for values that a message has: messages have empty ones, too.
func omitsEmpty(t reflect.Type, omit condition) func(part) bool {
	if omit == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Int32:
		return func(p part) bool { return int32(p.number) == 0 } // as numberAppender cuts it
	case reflect.Bool, reflect.Int64:
		return func(p part) bool { return p.number == 0 }
	case reflect.String:
		return func(p part) bool { return len(p.bytes) == 0 }
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return func(p part) bool { return len(p.bytes) == 0 }
		}
	}
	return nil // structs are never omitted; pointers, other slices and maps have a value
}
