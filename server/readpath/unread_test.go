package readpath

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// without is the twin of Fields.Without: it builds the parts on their own.
func (f Fields) without(message []byte) (rest []byte) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		m := protowire.ConsumeFieldValue(number, kind, message[n:])
		inner, some := f[number]
		if value, _ := protowire.ConsumeBytes(message[n:]); some && inner != nil {
			rest = protowire.AppendBytes(append(rest, message[:n]...), inner.without(value))
		} else if !some {
			rest = append(rest, message[:n+m]...)
		}
		message = message[n+m:]
	}
	return rest
}

// A message without some fields is as if they had not been written; what is no message is refused.
func TestWithoutFields(t *testing.T) {
	numbers := rapid.Map(rapid.IntRange(1, 4), func(n int) protowire.Number { return protowire.Number(n) })
	var message func(t *rapid.T, depth int) []byte
	message = func(t *rapid.T, depth int) (b []byte) {
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			number := numbers.Draw(t, "number")
			b = protowire.AppendTag(b, number, protowire.BytesType)
			if depth > 0 {
				b = protowire.AppendBytes(b, message(t, depth-1))
			} else {
				value := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "value")
				b = protowire.AppendBytes(b, value)
				b = protowire.AppendVarint(protowire.AppendTag(b, 9, protowire.VarintType), uint64(len(value)))
			}
		}
		return b
	}
	var fields func(t *rapid.T, depth int) Fields
	fields = func(t *rapid.T, depth int) Fields {
		f := Fields{}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			number := numbers.Draw(t, "number")
			if f[number] = nil; depth > 0 && rapid.Bool().Draw(t, "inner") {
				f[number] = fields(t, depth-1)
			}
		}
		return f
	}
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(0, 2).Draw(t, "depth")
		whole, without := message(t, depth), fields(t, depth)
		got, ok := without.Without([]byte("head"), whole)
		if want := append([]byte("head"), without.without(whole)...); !ok || !bytes.Equal(got, want) {
			t.Fatalf("%x without %v is %x, want %x", whole, without, got, want)
		}
		for i := range whole {
			without.Without(nil, whole[:i]) // does not panic
		}
	})
	for _, bad := range [][]byte{{0x80}, {1<<3 | 2, 5, 'x'}, {1 << 3, 1}} {
		if _, ok := (Fields{1: {}}).Without(nil, bad); ok {
			t.Errorf("%x is a message", bad)
		}
	}
}
