package object

import (
	"errors"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// message decodes a struct from protobuf by its tags. It decodes what the generated code of the Kubernetes
// API decodes, but allocates each slice and map once, and interns strings.
type message struct {
	fields []*field // by number; nil where there is none
}

// field decodes a field of a struct.
type field struct {
	index  int // in the struct
	number protowire.Number
	// decode decodes a value with a length; rest is the message after it. It is nil if the field has no
	// such values.
	decode func(in *interner, v reflect.Value, value, rest []byte) error
	// set sets a number. It is nil if the field has no numbers.
	set func(v reflect.Value, number uint64)
}

var errWireType = errors.New("protobuf: a field has another wire type than its number")

// decode decodes b into v, a struct.
func (m *message) decode(in *interner, v reflect.Value, b []byte) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var f *field
		if int(number) < len(m.fields) {
			f = m.fields[number]
		}
		if f == nil {
			n = protowire.ConsumeFieldValue(number, kind, b)
		} else if size, err := f.next(in, v.Field(f.index), kind, b); err != nil {
			return err
		} else {
			n = size
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
	}
	return nil
}

// next decodes the first value of b into v. It returns the size of the value; a negative size is protowire's
// error.
func (f *field) next(in *interner, v reflect.Value, kind protowire.Type, b []byte) (int, error) {
	switch {
	case kind == protowire.BytesType && f.decode != nil:
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return n, nil
		}
		return n, f.decode(in, v, value, b[n:])
	case kind == protowire.VarintType && f.set != nil:
		number, n := protowire.ConsumeVarint(b)
		if n >= 0 {
			f.set(v, number)
		}
		return n, nil
	}
	return 0, errWireType
}

// repeats counts the fields with a number at the front of b.
func repeats(number protowire.Number, b []byte) (count int) {
	for {
		next, kind, n := protowire.ConsumeTag(b)
		if n < 0 || next != number || kind != protowire.BytesType {
			return count
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return count
		}
		b = b[n+size:]
		count++
	}
}

// messages maps each reflect.Type to its *message, for all decoders; nil for a type that its tags do not
// describe.
var messages sync.Map

// messageOf returns the message of a struct, nil if its tags do not describe it.
func messageOf(t reflect.Type) *message {
	if known, ok := messages.Load(t); ok {
		return known.(*message)
	}
	p := planner{}
	m := p.message(t)
	messages.Store(t, m)
	return m
}
