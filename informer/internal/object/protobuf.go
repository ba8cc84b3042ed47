package object

import (
	"errors"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is how a struct is read from protobuf: as the generated code of the
// Kubernetes API does, which is told by the struct's tags. What this adds to that
// code is that it allocates each slice and map once, and no string that repeats.
type message struct {
	fields []*field // by number; nil where there is none
}

// field is how a field of a struct is read.
type field struct {
	index  int // in the struct
	number protowire.Number
	// read takes a value that has a length, nil if such a one is wrong; rest is the
	// message behind it.
	read func(in *interner, v reflect.Value, value, rest []byte) error
	// set takes a number, nil if such a one is wrong.
	set func(v reflect.Value, number uint64)
}

var errWireType = errors.New("protobuf: a field is of another type than its number says")

// decode reads b into v, a struct.
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
		} else if size, err := f.take(in, v.Field(f.index), kind, b); err != nil {
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

// take reads one value from the front of b into v. It returns the value's size,
// or, if that is negative, protowire's error.
func (f *field) take(in *interner, v reflect.Value, kind protowire.Type, b []byte) (int, error) {
	switch {
	case kind == protowire.BytesType && f.read != nil:
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return n, nil
		}
		return n, f.read(in, v, value, b[n:])
	case kind == protowire.VarintType && f.set != nil:
		number, n := protowire.ConsumeVarint(b)
		if n >= 0 {
			f.set(v, number)
		}
		return n, nil
	}
	return 0, errWireType
}

// repeats counts the fields of a number at the front of b.
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

// messages are known for all that decode: reflect.Type to *message, nil for a type
// whose tags don't say how it is read.
var messages sync.Map

// messageOf is how a struct is read, nil if its tags don't say it.
func messageOf(t reflect.Type) *message {
	if known, ok := messages.Load(t); ok {
		return known.(*message)
	}
	p := planner{}
	m := p.message(t)
	messages.Store(t, m)
	return m
}
