package etcd_test

import (
	"maps"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/source/etcd"
)

// Revisions has the keys of one revision, from all pages, without those that are not accepted.
func TestRevisions(t *testing.T) {
	accept := func(key keepwatch.Key) bool { return key.Name != "stray" }
	w := newFixture(t, etcd.Options{PageSize: 2, Accept: accept})
	want := map[keepwatch.Key]keepwatch.Revision{}
	for _, key := range []keepwatch.Key{{Namespace: "ns", Name: "a"}, {Namespace: "ns", Name: "b"},
		{Namespace: "ns-1", Name: "c"}, {Name: "e"}, {Namespace: "ns", Name: "b"}} {
		want[key] = w.put(t, key.String(), "1")
	}
	w.put(t, "ns/stray", "1")
	w.put(t, "ns/gone", "1")
	at := w.delete(t, "ns/gone")
	w.put(t, "ns/a", "later")
	w.delete(t, "e")
	w.put(t, "ns/z", "later")

	got := map[keepwatch.Key]keepwatch.Revision{}
	if err := w.Revisions(t.Context(), at, func(key keepwatch.Key, revision keepwatch.Revision) {
		got[key] = revision
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	none := func(keepwatch.Key, keepwatch.Revision) {}
	wantKind(t, w.Revisions(t.Context(), at+1000, none), keepwatch.Rewound)
	must(w.Compact(t.Context(), int64(at)+1))(t)
	wantKind(t, w.Revisions(t.Context(), at, none), keepwatch.Expired)
}

// A watch that is ended from outside has that failure, and the next one continues.
func TestEndWatches(t *testing.T) {
	w := newFixture(t, etcd.Options{})
	begin := w.put(t, "a", "1")
	watch := w.watch(t, begin)
	w.EndWatches(keepwatch.Failed(keepwatch.ProtocolViolation, "the state is wrong"))
	wantKind(t, readToEnd(t, watch), keepwatch.ProtocolViolation)
	end := w.put(t, "a", "2")
	if got := describe(readTo(t, w.watch(t, begin), begin, end)); got != "~a=2" {
		t.Errorf("the watch shows %s", got)
	}
}
