package objectjson

import (
	"errors"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// AppendMessage appends the JSON of an object whose protobuf message is given: the bytes that Append appends
// for the object that the Unmarshal method of its Go type returns. It decodes only values with a MarshalJSON
// method. It returns false for a message that it cannot encode, or that the Marshal method would have
// written otherwise. The caller then decodes it.
func AppendMessage(b []byte, t reflect.Type, message []byte) ([]byte, bool) {
	s := partStacks.Get().(*partStack)
	defer partStacks.Put(s)
	out, err := messageFieldsOf(t)().append(s, b, message)
	return out, err == nil
}

// errDecode is the reason to decode a message: it cannot be encoded as it is.
var errDecode = errors.New("the message must be decoded")

// part is what a message has of one field: a value without its tag, or repeated values with their tags.
type part struct {
	bytes  []byte
	number uint64 // the value, if it is a varint
	has    bool
}

// partStack has the parts of a message, behind those of the messages around it.
type partStack struct{ parts []part }

// partStacks are empty. An encoder that returns has cleared its parts, so that they refer to no message.
var partStacks = sync.Pool{New: func() any { return &partStack{} }}

// partAppender appends a value of one type.
type partAppender func(s *partStack, b []byte, p part) ([]byte, error)

// messageField is a field of a struct, as its message has it.
type messageField struct {
	number   protowire.Number // 0 if messages do not have it
	wire     protowire.Type
	repeated bool
	name     string // encoded, with a colon
	// absent is what is appended if the message does not have the field.
	absent string
	// append appends the field if the message has it. It appends next first, and returns what precedes the
	// next field: next, or a comma. Fields of an embedded struct are appended if the message does not have
	// it, too: embedded is true.
	append   func(s *partStack, b []byte, next byte, p part) ([]byte, byte, error)
	embedded bool
}

// messageFields are the fields of a struct, in the order of their JSON.
type messageFields struct {
	all      []messageField
	byNumber []int // indexes, or -1
}

func (f *messageFields) append(s *partStack, b, message []byte) ([]byte, error) {
	b, next, err := f.appendAll(s, b, '{', message)
	if next == '{' {
		b = append(b, '{')
	}
	return append(b, '}'), err
}

func (f *messageFields) appendAll(s *partStack, b []byte, next byte, message []byte) (_ []byte, _ byte, err error) {
	base := len(s.parts)
	s.parts = slices.Grow(s.parts, len(f.all))[:base+len(f.all)] // they are empty
	defer func() {
		clear(s.parts[base:])
		s.parts = s.parts[:base]
	}()
	if err := f.split(message, s.parts[base:]); err != nil {
		return b, next, err
	}
	for i := range f.all {
		field, p := &f.all[i], s.parts[base+i] // append may move the parts
		switch {
		case p.has || field.embedded:
			if b, next, err = field.append(s, b, next, p); err != nil {
				return b, next, err
			}
		case field.absent != "":
			b, next = append(append(b, next), field.absent...), ','
		}
	}
	return b, next, nil
}

// split finds the parts of a message. Marshal writes each field once, except repeated ones, whose values
// follow each other.
func (f *messageFields) split(message []byte, parts []part) error {
	last := -1
	for rest := message; len(rest) > 0; {
		number, wire, tag := protowire.ConsumeTag(rest)
		if tag < 0 || int(number) >= len(f.byNumber) || f.byNumber[number] < 0 {
			return errDecode
		}
		i := f.byNumber[number]
		field, p := &f.all[i], &parts[i]
		if wire != field.wire || p.has && (!field.repeated || i != last) {
			return errDecode
		}
		value, n := consume(wire, rest[tag:])
		if n < 0 {
			return errDecode
		}
		switch {
		case !field.repeated:
			*p = value
		case !p.has:
			p.bytes = rest[:tag+n]
		default:
			p.bytes = p.bytes[:len(p.bytes)+tag+n]
		}
		p.has, last, rest = true, i, rest[tag+n:]
	}
	return nil
}

// consume returns the value behind a tag, and its length. The length is negative if there is none.
func consume(wire protowire.Type, b []byte) (p part, n int) {
	p.has = true
	switch wire {
	case protowire.VarintType:
		p.number, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		p.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = -1
	}
	return p, n
}

// next returns the first of repeated values, which split has checked, and the rest.
func (p part) next() (first part, rest part) {
	_, wire, tag := protowire.ConsumeTag(p.bytes)
	first, n := consume(wire, p.bytes[tag:])
	return first, part{bytes: p.bytes[tag+n:]}
}

// structs maps each reflect.Type of a struct to a func() *messageFields.
var structs sync.Map

// messageFieldsOf returns a function that returns the fields of a struct: a type may contain itself.
func messageFieldsOf(t reflect.Type) func() *messageFields {
	if known, ok := structs.Load(t); ok {
		return known.(func() *messageFields)
	}
	known, _ := structs.LoadOrStore(t, sync.OnceValue(func() *messageFields { return newMessageFields(t) }))
	return known.(func() *messageFields)
}
