package object

import (
	"fmt"
	"strconv"
)

// tree reads JSON without a type, as unstructured objects hold it: numbers that
// have neither a fraction nor an exponent are int64 if they fit in one.
type tree struct {
	*interner
	// What was read of the objects and arrays that are not complete yet.
	members  []entry
	elements []any
}

// object reads a whole text, which must be an object.
func (r *tree) object(b []byte) (map[string]any, error) {
	t := &text{b: b}
	if t.peek() != '{' {
		return nil, fmt.Errorf("not a JSON object but %q", t.raw())
	}
	r.members, r.elements = r.members[:0], r.elements[:0]
	return r.dictionary(t)
}

func (r *tree) value(t *text) (any, error) {
	switch t.peek() {
	case '{':
		return r.dictionary(t)
	case '[':
		return r.list(t)
	case '"':
		return r.strings.value(t.quoted(), boxed), nil
	case 't':
		t.passLiteral()
		return true, nil
	case 'f':
		t.passLiteral()
		return false, nil
	case 'n':
		t.passLiteral()
		return nil, nil
	}
	return number(t.literal())
}

func boxed(s string) any { return s }

func number(b []byte) (any, error) {
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		return n, nil
	}
	return strconv.ParseFloat(string(b), 64)
}

func (r *tree) dictionary(t *text) (map[string]any, error) {
	base := len(r.members)
	for more := t.enter(); more; more = t.more() {
		name := r.strings.string(t.name())
		value, err := r.member(name, t)
		if err != nil {
			return nil, err
		}
		r.members = append(r.members, entry{name, value})
	}
	m := make(map[string]any, len(r.members)-base)
	for _, e := range r.members[base:] {
		m[e.text] = e.made
	}
	clear(r.members[base:])
	r.members = r.members[:base]
	return m, nil
}

// member reads a member's value. What a manager has fields of repeats from object
// to object; then they share it, unless a transform may change it. Nobody else may
// change it, nor any other part of an object in an informer.
func (r *tree) member(name string, t *text) (any, error) {
	if r.fields == nil || name != "fieldsV1" || t.peek() != '{' {
		return r.value(t)
	}
	var err error
	fields := r.fields.value(t.raw(), func(s string) any {
		var made any
		made, err = r.value(&text{b: []byte(s)})
		return made
	})
	return fields, err
}

func (r *tree) list(t *text) (any, error) {
	base := len(r.elements)
	for more := t.enter(); more; more = t.more() {
		value, err := r.value(t)
		if err != nil {
			return nil, err
		}
		r.elements = append(r.elements, value)
	}
	list := make([]any, len(r.elements)-base)
	copy(list, r.elements[base:])
	clear(r.elements[base:])
	r.elements = r.elements[:base]
	return list, nil
}
