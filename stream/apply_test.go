package stream

import (
	"context"
	"errors"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// states returns the two implementations of State; each is empty.
func states(t *testing.T) map[string]func() State {
	return map[string]func() State{
		"memory": InMemory,
		"disk":   func() State { return openDisk(t, t.TempDir()) },
	}
}

var testIdentity = Identity{Cluster: Cluster{Server: "https://example.org"}, Resource: "things"}

func openDisk(t *testing.T, dir string) *disk {
	t.Helper()
	s, err := Open(dir, testIdentity)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	d := s.(*disk)
	disableSync(d)
	return d
}

// disableSync makes writes fast: no test lets the machine crash.
func disableSync(d *disk) { d.db.NoSync, d.db.NoGrowSync = true, true }

// TestApply applies batches to a stream that is at 10 and has delivered a.1@5 and b.1@7.
func TestApply(t *testing.T) {
	tests := []struct {
		name     string
		batches  []keepwatch.Batch
		want     string
		revision keepwatch.Revision
		dropped  int
		failure  keepwatch.FailureKind
	}{
		{name: "history", batches: []keepwatch.Batch{batch(10, 14, "+c.1@11", "~a.1@12", "-b.1@13", "~c.1@14")},
			want: "+c.1@11, ~a.1@12, -b.1@13 (13), ~c.1@14", revision: 14},
		{name: "a bookmark", batches: []keepwatch.Batch{batch(10, 12)}, want: "bookmark 12", revision: 12},
		{name: "a bookmark behind changes", batches: []keepwatch.Batch{batch(10, 12, "~a.1@11")},
			want: "~a.1@11, bookmark 12", revision: 12},
		{name: "a bookmark behind a duplicate", batches: []keepwatch.Batch{batch(10, 12, "-x.1@12")},
			want: "", revision: 12, dropped: 1},
		{name: "a bookmark at the cursor", batches: []keepwatch.Batch{batch(10, 10)}, want: "bookmark 10", revision: 10},
		{name: "a bookmark below the cursor", batches: []keepwatch.Batch{batch(8, 9)}, want: "", revision: 10},
		{name: "duplicates", batches: []keepwatch.Batch{batch(4, 12, "+a.1@5", "~b.1@7", "~a.1@11", "~a.1@11", "~a.1@12")},
			want: "~a.1@11, ~a.1@12", revision: 12, dropped: 3},
		{name: "an older state", batches: []keepwatch.Batch{batch(10, 10, "~a.1@3")}, revision: 10, dropped: 1},
		{name: "an older deletion", batches: []keepwatch.Batch{batch(10, 10, "-a.0@3")}, revision: 10, dropped: 1},
		{name: "a deletion at the revision of the last state", batches: []keepwatch.Batch{batch(10, 12, "~a.1@11", "~b.1@12"),
			batch(12, 12, "-a.1@11")},
			want: "~a.1@11, ~b.1@12", failure: keepwatch.ProtocolViolation, revision: 12},
		{name: "a deletion of something unknown", batches: []keepwatch.Batch{batch(10, 11, "-x.1@11")}, revision: 11,
			dropped: 1},
		{name: "created and deleted in one batch", batches: []keepwatch.Batch{batch(10, 13, "+c.1@11", "~c.1@12", "-c.1@13")},
			want: "+c.1@11, ~c.1@12, -c.1@13 (13)", revision: 13},
		{name: "again under the same name", batches: []keepwatch.Batch{batch(10, 12, "-a.1@11", "+a.2@12")},
			want: "-a.1@11 (11), +a.2@12", revision: 12},
		{name: "a new UID without a deletion", batches: []keepwatch.Batch{batch(10, 11, "~a.2@11")},
			want: "-a.1@5 (11), +a.2@11", revision: 11},
		{name: "a deletion of another UID", batches: []keepwatch.Batch{batch(10, 11, "-a.2@11")},
			want: "-a.1@5 (11)", revision: 11},
		{name: "modified, but unknown", batches: []keepwatch.Batch{batch(10, 11, "~c.1@11")}, want: "+c.1@11", revision: 11},
		{name: "added, but known", batches: []keepwatch.Batch{batch(10, 11, "+a.1@11")}, want: "~a.1@11", revision: 11},
		{name: "a new change below the cursor", batches: []keepwatch.Batch{batch(8, 11, "~a.1@9", "~b.1@11")},
			failure: keepwatch.ProtocolViolation, revision: 10},
		{name: "an unknown object below the cursor", batches: []keepwatch.Batch{batch(8, 10, "+c.1@9")},
			failure: keepwatch.ProtocolViolation, revision: 10},
		{name: "out of order", batches: []keepwatch.Batch{batch(10, 13, "~a.1@12", "~b.1@11")},
			failure: keepwatch.ProtocolViolation, revision: 10},
		{name: "beyond the batch", batches: []keepwatch.Batch{batch(10, 11, "~a.1@12")},
			failure: keepwatch.ProtocolViolation, revision: 10},
		{name: "a hole", batches: []keepwatch.Batch{batch(11, 13, "~a.1@12")},
			failure: keepwatch.ProtocolViolation, revision: 10},
	}
	for kind, state := range states(t) {
		for _, tt := range tests {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				x := newTestStream(t, state(), Options{Bookmarks: true})
				x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7")
				if got := x.delivered(); got != "+a.1@5, +b.1@7, synced 10 #2" {
					t.Fatalf("the first list was delivered as %s", got)
				}
				var dropped int
				var err error
				for _, b := range tt.batches {
					if dropped, err = x.Apply(context.Background(), b); err != nil {
						break
					}
				}
				if kind := kindOf(err); kind != tt.failure {
					t.Errorf("failure %v (%v), want %v", kind, err, tt.failure)
				}
				if dropped != tt.dropped {
					t.Errorf("dropped %d, want %d", dropped, tt.dropped)
				}
				if got := x.delivered(); got != tt.want {
					t.Errorf("delivered %s\nwant %s", got, tt.want)
				}
				if got := x.Revision(); got != tt.revision {
					t.Errorf("Revision is %d, want %d", got, tt.revision)
				}
			})
		}
	}
}

func kindOf(err error) keepwatch.FailureKind {
	if failure := (*keepwatch.Failure)(nil); errors.As(err, &failure) {
		return failure.Kind
	}
	return 0
}

func TestApplyNeedsAList(t *testing.T) {
	x := newTestStream(t, InMemory(), Options{})
	if _, err := x.Apply(context.Background(), batch(10, 11, "+a.1@11")); kindOf(err) != keepwatch.ProtocolViolation {
		t.Errorf("got %v", err)
	}
}

// withoutJSON is an object whose JSON method is not the one of Object.
type withoutJSON struct{ thing }

func (withoutJSON) JSON() {}

func TestObjectsWithoutJSONEndTheStream(t *testing.T) {
	x := newTestStream(t, InMemory(), Options{})
	x.list(keepwatch.Relist{}, 10)
	x.delivered()
	b := batch(10, 11)
	b.Changes = []keepwatch.Change{{Type: keepwatch.Added, Revision: 11, Object: withoutJSON{at("a.1@11")}}}
	if _, err := x.Apply(context.Background(), b); err == nil || kindOf(err) != 0 {
		t.Errorf("got %v, want an error that is no Failure", err)
	}
	if got := x.delivered(); got != "" || x.Revision() != 10 {
		t.Errorf("delivered %s, Revision is %d", got, x.Revision())
	}
}
