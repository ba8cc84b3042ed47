package keepwatch_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch"
)

func TestParseRevision(t *testing.T) {
	for s, want := range map[string]keepwatch.Revision{"1": 1, "18446744073709551615": 1<<64 - 1, "42": 42} {
		if got, err := keepwatch.ParseRevision(s); err != nil || got != want || got.String() != s {
			t.Errorf("ParseRevision(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "-1", "+1", "01", "1 ", "0x1", "18446744073709551616", "a"} {
		if got, err := keepwatch.ParseRevision(s); err == nil {
			t.Errorf("ParseRevision(%q) = %v, want an error", s, got)
		}
	}
}

func FuzzParseRevision(f *testing.F) {
	for _, s := range []string{"1", "007", "0", "", "+1", "1_000", "18446744073709551615", "18446744073709551616", "0x1",
		"١", " 1", "1e3"} {
		f.Add(s)
	}
	decimal := regexp.MustCompile(`\A[1-9][0-9]*\z`)
	f.Fuzz(func(t *testing.T, s string) {
		r, err := keepwatch.ParseRevision(s)
		if err == nil && (r == 0 || r.String() != s) {
			t.Errorf("ParseRevision(%q) = %d", s, r)
		}
		if len(s) < 20 && (err == nil) != decimal.MatchString(s) {
			t.Errorf("ParseRevision(%q): %v", s, err)
		}
	})
}

// TestKeysCompareLikeTheirPaths holds Compare against the bytes of
// "namespace/name", which is what etcd compares.
func TestKeysCompareLikeTheirPaths(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	word := func() string {
		b := make([]byte, 1+random.IntN(3))
		for i := range b {
			b[i] = "a-.0z"[random.IntN(5)]
		}
		return string(b)
	}
	for range 20_000 {
		a := keepwatch.Key{Namespace: word(), Name: word()}
		b := keepwatch.Key{Namespace: word(), Name: word()}
		if strings.ContainsRune(a.Namespace+b.Namespace, '.') {
			continue // a namespace is a DNS label
		}
		if got, want := a.Compare(b), cmp.Compare(a.String(), b.String()); got != want {
			t.Fatalf("%v compared with %v is %d, want %d", a, b, got, want)
		}
	}
}

func TestFailureKindsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range keepwatch.FailureKinds() {
		if name := k.String(); name == "" || seen[name] || strings.Contains(name, "(") {
			t.Errorf("kind %d is called %q", k, name)
		}
		seen[k.String()] = true
	}
}

type named struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
}

func (n *named) Key() keepwatch.Key           { return n.key }
func (n *named) UID() keepwatch.UID           { return n.uid }
func (n *named) Revision() keepwatch.Revision { return n.revision }

func ExampleChange_ID() {
	pod := &named{keepwatch.Key{Namespace: "web", Name: "a"}, "3f2c", 17}
	fmt.Println(keepwatch.Change{Type: keepwatch.Modified, Revision: 17, Object: pod}.ID())
	fmt.Println(keepwatch.Change{Type: keepwatch.Deleted, Revision: 20, Object: pod}.ID())
	// Output:
	// 3f2c/17
	// 3f2c/17/deleted
}

func ExampleKey_Compare() {
	a, b := keepwatch.Key{Namespace: "ns-a", Name: "x"}, keepwatch.Key{Namespace: "ns", Name: "x"}
	fmt.Println(a, "before", b, "is", a.Compare(b) < 0)
	// Output:
	// ns-a/x before ns/x is true
}
