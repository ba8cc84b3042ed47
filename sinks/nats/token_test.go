package nats

import (
	"strings"
	"testing"
)

// FuzzToken checks that different names have different tokens, without a character that is special in subjects or keys.
func FuzzToken(f *testing.F) {
	f.Add("a.b", "a_b")
	f.Add("a=2Eb", "a.b")
	f.Add(strings.Repeat("a", 512), strings.Repeat("a", 513))
	f.Add(strings.Repeat("ü", 300), strings.Repeat("ü", 300)+"u")
	f.Add("a=="+strings.Repeat("0", 64), strings.Repeat("\n", 40_000))
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "." || b == "." { // no name
			return
		}
		if (a == b) != (token(a) == token(b)) {
			t.Errorf("%q and %q are %q and %q", a, b, token(a), token(b))
		}
		if len(token(a)) > 512 {
			t.Errorf("%.100q has a token of %d bytes", a, len(token(a)))
		}
		if strings.ContainsAny(token(a), ".*> \r\n\t/$") || token(a) == "" {
			t.Errorf("%q is %q", a, token(a))
		}
	})
}
