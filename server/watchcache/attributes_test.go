package watchcache

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// Attributes equal the map that they were made of.
func TestAttributesAreTheMap(t *testing.T) {
	in := newInterner()
	names := rapid.SampledFrom([]string{"", "a", "b", "app.kubernetes.io/name", strings.Repeat("long", 40)})
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.MapOf(names, names).Draw(t, "set")
		made := in.attributes(keepwatch.Key{Namespace: "a", Name: "b"}, maps.Clone(set))
		name := names.Draw(t, "name")
		want, exists := set[name]
		if got, ok := made.Lookup(name); got != want || ok != exists || made.Has(name) != exists || made.Get(name) != want {
			t.Fatalf("%q is %q, %v; want %q, %v", name, got, ok, want, exists)
		}
		selector := labels.SelectorFromSet(rapid.MapOfN(names, names, 0, 1).Draw(t, "selector"))
		if got, want := selector.Matches(&made), selector.Matches(labels.Set(set)); got != want {
			t.Fatalf("%v matches %v: %v, want %v", selector, set, got, want)
		}
	})
}

// Objects with equal attributes share their text, and the interner is bounded.
func TestInterner(t *testing.T) {
	in := newInterner()
	of := func(key keepwatch.Key) attributes {
		return in.attributes(key, map[string]string{
			strings.Clone("app"): strings.Clone("web"), "name": strings.Clone(key.Name),
			"namespace": strings.Clone(key.Namespace),
		})
	}
	same := func(a, b string) bool { return a == b && unsafe.StringData(a) == unsafe.StringData(b) }
	key := keepwatch.Key{Namespace: "ns", Name: "one"}
	one, two := of(key), of(keepwatch.Key{Namespace: "ns", Name: "two"})
	if &one.names[0] != &two.names[0] || !same(one.Get("app"), two.Get("app")) {
		t.Error("equal texts are stored twice")
	}
	if !same(one.Get("name"), key.Name) || !same(one.Get("namespace"), key.Namespace) {
		t.Error("the text of the key is stored twice")
	}
	for i := range 3 * internedStrings {
		in.attributes(key, map[string]string{"app": fmt.Sprint(i), fmt.Sprint("l", i): ""})
	}
	if in.strings.Len() > internedStrings || in.names.Len() > internedStrings {
		t.Errorf("%d strings and %d lists of names are stored", in.strings.Len(), in.names.Len())
	}
}
