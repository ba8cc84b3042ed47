package object

import (
	"fmt"
	"strconv"
)

// member is a member of an untyped object.
type member struct {
	name  string
	value any
}

// untyped decodes a text, which must be an object, into the Go values of unstructured objects. A number
// without a fraction and an exponent is an int64 if it fits.
func (d *jsonDecoder) untyped(b []byte) (map[string]any, error) {
	d.tokens = tokens{text: b}
	defer func() { d.tokens = tokens{} }() // b is the caller's
	d.members, d.elements = d.members[:0], d.elements[:0]
	if d.peek() != '{' {
		return nil, fmt.Errorf("not a JSON object but %.40q", d.raw())
	}
	return d.object()
}

func (d *jsonDecoder) value() (any, error) {
	switch d.peek() {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '"':
		return d.strings.OfBytes(d.string(), boxed), nil
	case 't':
		d.skipLiteral()
		return true, nil
	case 'f':
		d.skipLiteral()
		return false, nil
	case 'n':
		d.skipLiteral()
		return nil, nil
	}
	return number(d.literal())
}

func number(b []byte) (any, error) {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(string(b), 64)
}

// object makes a map of its final size.
func (d *jsonDecoder) object() (map[string]any, error) {
	base := len(d.members)
	for more := d.enter(); more; more = d.more() {
		name := d.intern(d.name())
		value, err := d.memberValue(name)
		if err != nil {
			return nil, err
		}
		d.members = append(d.members, member{name, value})
	}
	m := make(map[string]any, len(d.members)-base)
	for _, e := range d.members[base:] {
		m[e.name] = e.value
	}
	clear(d.members[base:])
	d.members = d.members[:base]
	return m, nil
}

// memberValue decodes the value of a member. Equal field sets are shared.
func (d *jsonDecoder) memberValue(name string) (any, error) {
	if d.fields == nil || name != "fieldsV1" || d.peek() != '{' {
		return d.value()
	}
	b := d.raw()
	nested := jsonDecoder{interner: d.interner}
	set, ok := d.fields.OfBytes(b, func(text string) any {
		decoded, err := nested.untyped([]byte(text))
		if err != nil {
			return nil
		}
		return decoded
	}).(map[string]any)
	if !ok {
		return nested.untyped(b) // it fails again, with its error
	}
	return set, nil
}

// array makes a slice of its final length.
func (d *jsonDecoder) array() ([]any, error) {
	base := len(d.elements)
	for more := d.enter(); more; more = d.more() {
		value, err := d.value()
		if err != nil {
			return nil, err
		}
		d.elements = append(d.elements, value)
	}
	list := make([]any, len(d.elements)-base)
	copy(list, d.elements[base:])
	clear(d.elements[base:])
	d.elements = d.elements[:base]
	return list, nil
}
