package etcd_test

import (
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// Unchanged finds changes of the prefix, and none of others.
func TestUnchanged(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	w.put(t, "ns/a", "1")
	from := w.put(t, "ns/b", "1")
	must(w.Client.Put(t.Context(), "/elsewhere"+w.prefix, "other"))(t)
	quiet := must(w.Newest(t.Context()))(t)
	deleted := w.delete(t, "ns/a")
	put := w.put(t, "ns/c", "1")
	for name, test := range map[string]struct {
		from, to keepwatch.Revision
		want     keepwatch.FailureKind // 0 for unchanged
	}{
		"another key was put": {from, quiet, 0},
		"a key was deleted":   {from, deleted, keepwatch.Silent},
		"a key was put":       {deleted, put, keepwatch.Silent},
		"both":                {from, put, keepwatch.Silent},
		"nothing":             {put, put, 0},
	} {
		if err := w.Unchanged(t.Context(), test.from, test.to); kindOf(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	must(w.Client.Compact(t.Context(), int64(deleted)))(t)
	if err := w.Unchanged(t.Context(), from, deleted); kindOf(err) != keepwatch.Expired {
		t.Errorf("from a compacted revision: %v", err)
	}
}
