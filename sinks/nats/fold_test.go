package nats

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
)

// TestFoldHasObjectsOnly reads messages that a crash has left out of the bucket, one of each type.
func TestFoldHasObjectsOnly(t *testing.T) {
	f := newFold()
	for _, x := range []change{
		{Type: "GAP", Resource: "pods", Reason: keepwatch.GapExpired},
		{Type: "ADDED", Resource: "pods", Namespace: "a", Name: "one", UID: "1", Revision: 3},
		{Type: "ADDED", Resource: "pods", Namespace: "a", Name: "two", UID: "2", Revision: 4},
		{Type: "DELETED", Resource: "pods", Namespace: "a", Name: "two", UID: "2", Revision: 5},
		{Type: "SYNCED", Resource: "pods"},
		{Type: "BOOKMARK", Resource: "pods"},
		{Type: "CURSOR", Resource: "pods"},
	} {
		h := nats.Header{}
		setHeader(h, changeHeader, x)
		if err := f.addBehind(h); err != nil {
			t.Fatal(err)
		}
	}
	entries := slices.Collect(f.objects.Entries(stream.Identity{Resource: "pods"}).All())
	if want := (stream.Entry{Key: keepwatch.Key{Namespace: "a", Name: "one"}, UID: "1", Revision: 3}); len(entries) != 1 ||
		entries[0] != want {
		t.Errorf("got %v, want %v", entries, want)
	}
	key := broker.StreamKey{Resource: "pods"}
	if tail := f.tails[key]; tail.delivered != 5 || len(f.deleted[key]) != 1 || tail.gap == nil {
		t.Errorf("got %+v", tail)
	}
	if len(f.changed) != 3 {
		t.Errorf("the bucket receives %v", f.changed)
	}
}
