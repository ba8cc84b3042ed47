package operator

import (
	"slices"
	"testing"

	"k8s.io/client-go/rest"
)

// TestNamespacesOverlap names namespaces twice: each has one informer, since two deliver the objects of a name twice,
// in no order.
func TestNamespacesOverlap(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  int
	}{{nil, 1}, {[]string{"a", "b"}, 2}, {[]string{"b", "a", "b"}, 2}, {[]string{"", "a"}, 1}, {[]string{"a", ""}, 1}} {
		given := slices.Clone(test.names)
		f, err := newInformers(&rest.Config{Host: "https://127.0.0.1:1"}, widgetKind, New("widgets.example.com",
			Namespaces(given...)))
		if err != nil {
			t.Fatal(err)
		}
		if len(f.each) != test.want || !slices.Equal(given, test.names) {
			t.Errorf("%q: %d informers, and the caller's names are %q", test.names, len(f.each), given)
		}
	}
}
