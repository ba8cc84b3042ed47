package readpath

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields are fields of a protobuf message by their numbers: all of a field if its value is nil, otherwise fields of the
// messages that it holds.
type Fields map[protowire.Number]Fields

// Without appends a message without these fields. It returns false for what is no message.
func (f Fields) Without(b, message []byte) ([]byte, bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return b, false
		}
		m := protowire.ConsumeFieldValue(number, kind, message[n:])
		if m < 0 {
			return b, false
		}
		inner, some := f[number]
		switch {
		case !some:
			b = append(b, message[:n+m]...)
		case inner == nil:
		case kind != protowire.BytesType:
			return b, false
		default:
			value, _ := protowire.ConsumeBytes(message[n:])
			var ok bool
			if b, ok = inner.appendWithout(append(b, message[:n]...), value); !ok {
				return b, false
			}
		}
		message = message[n+m:]
	}
	return b, true
}

// appendWithout appends the length of a message without these fields, and then the message.
func (f Fields) appendWithout(b, message []byte) ([]byte, bool) {
	// It is not longer than before, so that its length needs no more bytes. Where it needs fewer, the message moves.
	room := protowire.SizeVarint(uint64(len(message)))
	start := len(b)
	b = append(b, make([]byte, room)...)
	b, ok := f.Without(b, message)
	if !ok {
		return b, false
	}
	length := len(b) - start - room
	copy(b[start+protowire.SizeVarint(uint64(length)):], b[start+room:])
	protowire.AppendVarint(b[:start], uint64(length))
	return b[:start+protowire.SizeVarint(uint64(length))+length], true
}
