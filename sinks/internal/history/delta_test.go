package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// TestDelta makes random texts of random parts of others, and applies their deltas.
func TestDelta(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	words := []string{`"name":"web"`, `"résumé":"é"`, `\u0000`, "\n\t", `"日本語"`, `{"a":[1,2,3]}`, `"`, `\`, "x", "𝄞"}
	text := func(of string) string {
		var out strings.Builder
		for range random.IntN(200) {
			if n := len(of); n > 0 && random.IntN(2) == 0 {
				from := random.IntN(n)
				out.WriteString(strings.ToValidUTF8(of[from:from+random.IntN(min(n-from, 90)+1)], ""))
			} else {
				out.WriteString(words[random.IntN(len(words))])
			}
		}
		return out.String()
	}
	shorter := 0
	for i := range 1000 {
		base := text("")
		for range 3 {
			next := text(base)
			delta, ok := NewBase(base).Delta(next)
			got, err := NewText(base).Apply(delta)
			if err != nil || string(got) != next {
				t.Fatalf("seed %d, text %d: of %q and %q the delta is %s, which is applied as %q, %v", seed, i, base, next,
					delta, got, err)
			}
			if ok {
				shorter++
			}
		}
	}
	if shorter < 1000 {
		t.Errorf("%d deltas are shorter than their texts", shorter)
	}
}

// TestDeltaIsShort checks that a delta has little more than what differs.
func TestDeltaIsShort(t *testing.T) {
	state := func(revision int, time string) string {
		fields := strings.Repeat(`{"name":"a","ports":[{"containerPort":80}]},`, 100)
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"},"spec":[%s{}],"status":{"time":%q}}`, revision, fields, time)
	}
	delta, ok := NewBase(state(10, "12:00")).Delta(state(11, "12:05"))
	if !ok || len(delta) > 60 {
		t.Errorf("%d bytes: %s", len(delta), delta)
	}
}

// TestDeltaRefuses checks what no database can count the characters of, and what would not be shorter.
func TestDeltaRefuses(t *testing.T) {
	long := strings.Repeat("0123456789", 10)
	for name, texts := range map[string][2]string{"no text": {long, long + "\xff"}, "NUL": {long, long + "\x00"},
		"nothing in common": {long, "abc"}} {
		if delta, ok := NewBase(texts[0]).Delta(texts[1]); ok {
			t.Errorf("%s: %s", name, delta)
		}
	}
	for _, text := range []string{long + "\xff", long + "\x00", strings.Repeat("x", maxBase+1)} {
		if NewBase(text) != nil {
			t.Errorf("a base of %d bytes", len(text))
		}
	}
}

// TestApplyRefuses checks that a damaged delta is an error.
// A database looks for each part from the beginning of the base: many parts of a large one are no delta.
func TestDeltaHasFewParts(t *testing.T) {
	text := func(changed string) string {
		var out strings.Builder
		for i := range 8000 {
			fmt.Fprintf(&out, `{"name":"endpoint-%06d","address":"10.0.0.1","zone":"europe-west","seen":"%s"},`, i, changed)
		}
		return out.String()
	}
	if delta, ok := NewBase(text("1")).Delta(text("2")); ok {
		t.Errorf("it has %d bytes", len(delta))
	}
}

func TestApplyRefuses(t *testing.T) {
	for _, delta := range []string{"", "{}", "[", "[1]", "[[0,1]]", "[[1,5]]", "[[3,-1]]", "[[-1,1]]", `["\ud8"]`,
		"[null]", `["a",]`, `["a"]]`, `["a`, "[[1,2,3]]",
		`["a" "b"]`, "[[1,2]", `["\x"]`,
		"[[9223372036854775807,9223372036854775807]]"} {
		for _, base := range []string{"abc", "abé"} {
			if text, err := NewText(base).Apply(delta); err == nil {
				t.Errorf("%s of %s is %q", delta, base, text)
			}
		}
	}
}
