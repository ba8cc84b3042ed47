package etcd

import (
	"testing"

	"github.com/keepwatch/keepwatch"
)

// Each storage key below the prefix has one object key, which maps back to it.
func FuzzKey(f *testing.F) {
	for _, rest := range []string{"ns/name", "name", "a/b/c", "/", "//", "a/", "/a", "", "\xff/\x00"} {
		f.Add(rest)
	}
	const p prefix = "/registry/pods/"
	f.Fuzz(func(t *testing.T, rest string) {
		storageKey := []byte(string(p) + rest)
		if covered := p.covers(storageKey); covered != (rest != "") {
			t.Fatalf("covers %q: %v", rest, covered)
		} else if !covered {
			return
		}
		key := p.key(storageKey)
		if back := p.storageKey(key); back != string(storageKey) {
			t.Errorf("%q became %+v, which is stored at %q", storageKey, key, back)
		}
		if key.Name == "" {
			t.Errorf("%q has no name", storageKey)
		}
		if s := string(storageKey); s < string(p.first()) || s >= string(p.end()) {
			t.Errorf("%q is not in the range", s)
		}
	})
}

// A continue token that parsePosition accepts is one that a list could have returned.
func FuzzContinueToken(f *testing.F) {
	for _, token := range []string{
		position{revision: 7, limit: 500, after: keepwatch.Key{Namespace: "ns", Name: "a b"}}.String(),
		"", "7", "7 1", "7 1 ", "0 1 a", "7 0 a", "-7 1 a", "18446744073709551615 1 a", "7 1  /", "7  a",
	} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		p, err := parsePosition(token)
		if err != nil {
			return
		}
		if p.revision == 0 || int64(p.revision) < 0 || p.limit < 1 || p.after.Name == "" {
			t.Errorf("%q is parsed as %+v", token, p)
		}
		if again, err := parsePosition(p.String()); err != nil || again != p {
			t.Errorf("%q is parsed as %+v, then as %+v, %v", token, p, again, err)
		}
	})
}
