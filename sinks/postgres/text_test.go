package postgres

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"
)

// FuzzAcceptable checks that any JSON text becomes one of the same meaning, except for NUL and
// halves of surrogate pairs, which it does not contain any more.
func FuzzAcceptable(f *testing.F) {
	for _, text := range []string{`{"a":"\u0000"}`, `"\\u0000"`, `"\\\u0000"`, `"\ud83d\ude42"`, `"\ud83d"`,
		`"\ude42\ud83d"`, `"\ud83d\ud83d\ude42"`, `"\u0041\n"`, `{"\u0000":1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		before := bytes.Clone(text)
		got := acceptable(text)
		if !bytes.Equal(text, before) {
			t.Fatal("the argument was changed")
		}
		// encoding/json decodes a half as U+FFFD, too.
		var a, b any
		if err := json.Unmarshal(text, &a); err != nil {
			return
		}
		if err := json.Unmarshal(got, &b); err != nil {
			t.Fatalf("%q became %q: %v", text, got, err)
		}
		if x, y := flat(a), flat(b); x != y {
			t.Fatalf("%q became %q: %q, %q", text, got, x, y)
		}
		if unacceptable(got) {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// flat encodes a value with U+FFFD in place of NUL.
func flat(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(text), `\\`, "\x00"), `\u0000`, "\ufffd")
}

// unacceptable reports whether a text has what jsonb refuses, by a decoder of its own.
func unacceptable(text []byte) bool {
	var units []uint16
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			units = append(units, 1)
		case text[i+1] != 'u':
			units = append(units, 1)
			i++
		default:
			var unit [1]uint16
			for _, c := range bytes.ToLower(text[i+2 : i+6]) {
				unit[0] = unit[0]<<4 | uint16(bytes.IndexByte([]byte("0123456789abcdef"), c))
			}
			units = append(units, unit[0])
			i += 5
		}
	}
	for i := 0; i < len(units); i++ {
		switch u := rune(units[i]); {
		case u == 0:
			return true
		case utf16.IsSurrogate(u):
			if i+1 == len(units) || utf16.DecodeRune(u, rune(units[i+1])) == 0xfffd {
				return true
			}
			i++
		}
	}
	return false
}
