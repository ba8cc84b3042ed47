package intern

import (
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// Of returns an equal text, the stored one if there is one, and the table never exceeds its bounds.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts, length := rapid.IntRange(1, 5).Draw(t, "texts"), rapid.IntRange(0, 3).Draw(t, "length")
		table := New[string](texts, length)
		for _, text := range rapid.SliceOf(rapid.StringN(0, 4, 4)).Draw(t, "requests") {
			stored, known := table.made[text]
			var got string
			if rapid.Bool().Draw(t, "bytes") {
				b := []byte(text)
				got = table.OfBytes(b, Text)
				clear(b)
			} else {
				got = table.Of(strings.Clone(text), Text)
			}
			if got != text || known && unsafe.StringData(got) != unsafe.StringData(stored) {
				t.Fatalf("%q is %q", text, got)
			}
			if _, stored := table.made[text]; stored != (len(text) <= length) || table.Len() > texts {
				t.Fatalf("%q is stored: %v, of %d texts", text, stored, table.Len())
			}
		}
	})
}

// A function that panics leaves nothing in the table.
func TestPanics(t *testing.T) {
	table := New[int](2, 10)
	func() {
		defer func() { _ = recover() }()
		table.Of("a", func(string) int { panic("no value") })
	}()
	if table.Len() != 0 || table.Of("a", func(string) int { return 1 }) != 1 {
		t.Errorf("%d texts are stored", table.Len())
	}
}
