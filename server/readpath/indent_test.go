package readpath

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
)

// jsonText generates JSON values of any nesting, with empty ones and strings that look like syntax.
func jsonText(t *rapid.T, depth int) any {
	strange := rapid.SampledFrom([]string{"", "a", "\"", "\\", "\\\"", "{", "[]", ",", ":", "\n", "é<&>", "\\\\\"}"})
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Float64Range(-1e30, 1e30).Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return strange.Draw(t, "string")
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = jsonText(t, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		object[strange.Draw(t, "field")] = jsonText(t, depth-1)
	}
	return object
}

func marshaled(t *rapid.T, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestIndentedAsByTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := marshaled(t, jsonText(t, rapid.SampledFrom([]int{5, 40}).Draw(t, "nesting")))
		if rapid.Bool().Draw(t, "spaced") {
			var spaced bytes.Buffer
			if err := json.Indent(&spaced, text, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			text = spaced.Bytes()
		}
		depth := rapid.IntRange(0, 3).Draw(t, "depth")
		var want bytes.Buffer
		if err := json.Indent(&want, text, strings.Repeat(indentation, depth), indentation); err != nil {
			t.Fatal(err)
		}
		if got := appendIndented([]byte("x"), text, depth); string(got) != "x"+want.String() {
			t.Fatalf("%s at depth %d:\n%s\nwant\n%s", text, depth, got[1:], want.Bytes())
		}
	})
}

func BenchmarkIndent(b *testing.B) {
	text := must(json.Marshal(fleet.Pod(1)))(b)
	b.Run("appendIndented", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		var to []byte
		for b.Loop() {
			to = appendIndented(to[:0], text, 2)
		}
	})
	b.Run("json.Indent", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		var to bytes.Buffer
		for b.Loop() {
			to.Reset()
			must(0, json.Indent(&to, text, "    ", "  "))(b)
		}
	})
}
