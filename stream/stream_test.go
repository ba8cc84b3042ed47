package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// TestRestart checks that a run that continues sends SYNCED with the first bookmark, but
// not before it has delivered as much as the run before it.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTestStream(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if err := d.announce(nil, 13); err != nil { // events up to 13 may have been written
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	x = newTestStream(t, openDisk(t, dir), Options{Bookmarks: true})
	if x.Revision() != 10 {
		t.Fatalf("Revision is %d", x.Revision())
	}
	for _, step := range []struct {
		batch     keepwatch.Batch
		delivered string
	}{
		{batch(10, 10), ""},
		{batch(10, 11, "~a.1@11"), "~a.1@11"},
		{batch(11, 12), ""},
		{batch(12, 13, "+b.1@13"), "+b.1@13"},
		{batch(13, 13), "synced 13 #2, bookmark 13"},
		{batch(13, 15), "bookmark 15"},
	} {
		if _, err := x.Apply(context.Background(), step.batch); err != nil {
			t.Fatal(err)
		}
		if got := x.delivered(); got != step.delivered {
			t.Errorf("%+v was delivered as %s, want %s", step.batch, got, step.delivered)
		}
	}
}

// TestRestartWithNothingNew checks that SYNCED follows at once if the source confirms that
// the stream is current.
func TestRestartWithNothingNew(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	newTestStream(t, d, Options{}).list(keepwatch.Relist{}, 10, "a.1@5")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	synced := 0
	x := newTestStream(t, openDisk(t, dir), Options{Synced: func() { synced++ }})
	for range 2 {
		if _, err := x.Apply(context.Background(), batch(10, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := x.delivered(), "synced 10 #1"; got != want || synced != 1 {
		t.Errorf("delivered %s, %d times; want %s, once", got, synced, want)
	}
}

// TestSyncedIsCommitted checks that Synced is called after the commit of a SYNCED, and not
// if the commit fails.
func TestSyncedIsCommitted(t *testing.T) {
	state := &fullState{State: InMemory()}
	var committed []keepwatch.Revision
	x := newTestStream(t, state, Options{Synced: func() { committed = append(committed, state.position().Cursor) }})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if _, err := x.Apply(context.Background(), batch(10, 11, "~a.1@11")); err != nil {
		t.Fatal(err)
	}
	x.list(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}, 20, "a.1@11")
	if want := []keepwatch.Revision{10, 20}; !slices.Equal(committed, want) {
		t.Errorf("committed at %v, want %v", committed, want)
	}

	r := x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 30}, "a.1@11")
	x.delivered()
	state.full = true
	if err := r.Commit(context.Background(), 30); !errors.Is(err, errNoSpace) {
		t.Errorf("got %v", err)
	}
	if got, want := x.delivered(), "synced 30 #1"; got != want || len(committed) != 2 {
		t.Errorf("delivered %s, want %s; reported %v", got, want, committed)
	}
}

// fullState is a state that cannot be written while it is full.
type fullState struct {
	State
	full bool
}

func (f *fullState) commit(c commit) error {
	if f.full {
		return errNoSpace
	}
	return f.State.commit(c)
}

// TestPartialObjects checks that the index records a PartialObjectMetadata under the
// object's own kind.
func TestPartialObjects(t *testing.T) {
	dir := t.TempDir()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	d := openDisk(t, dir)
	x := newTestStream(t, d, Options{Kind: kind})
	r, err := x.Replace(context.Background(), keepwatch.Relist{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(context.Background(), []keepwatch.Object{partial{at("a.1@5")}, at("b.1@6")}); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(context.Background(), 10); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTestStream(t, openDisk(t, dir), Options{Kind: kind})
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 20}, 20)
	got := x.lines.String()
	for _, want := range []string{
		`"object":{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"default","name":"a",`,
		`"object":{"apiVersion":"v1","kind":"Thing","metadata":{"namespace":"default","name":"b",`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("delivered %s, want %s", got, want)
		}
	}
}

// partial is a thing that the server sends as PartialObjectMetadata.
type partial struct{ thing }

func (o partial) JSON() []byte { return o.Metadata() }

func (o partial) Metadata() []byte {
	return bytes.Replace(o.thing.Metadata(), []byte(`"apiVersion":"v1","kind":"Thing"`),
		[]byte(`"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata"`), 1)
}

// TestRestartWithinAGap checks that a run that begins within a gap lists, even if the
// history is available: it could contradict the difference.
func TestRestartWithinAGap(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTestStream(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	x.putList(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}, "a.1@18")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTestStream(t, openDisk(t, dir), Options{})
	if x.Revision() != 0 {
		t.Fatalf("Revision is %d, want 0, because a list is due", x.Revision())
	}
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 21}, 21, "a.1@18")
	if got, want := x.delivered(), "gap 10-21 downtime, synced 21 #1"; got != want {
		t.Errorf("delivered %s, want %s", got, want)
	}
}

// fullWriter is an output that fails every write.
type fullWriter struct{}

var errNoSpace = errors.New("no space left on device")

func (fullWriter) Write([]byte) (int, error) { return 0, errNoSpace }

// TestFailingOutput checks that the error of an output ends the stream, that nothing is
// committed, and that repeated runs do not add announcements.
func TestFailingOutput(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTestStream(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	changes := batch(10, 13, "-a.1@11", "+a.2@12", "+b.1@13")
	for range 5 {
		d := openDisk(t, dir)
		s, err := New(NDJSON(fullWriter{}, "things"), d, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(context.Background(), changes); !errors.Is(err, errNoSpace) || kindOf(err) != 0 {
			t.Fatalf("got %v", err)
		}
		if s.Revision() != 10 {
			t.Errorf("Revision is %d", s.Revision())
		}
		if found, err := d.announced(); err != nil || len(found) != 3 {
			t.Errorf("%d announcements, %v", len(found), err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d = openDisk(t, dir)
	x = newTestStream(t, d, Options{})
	if _, err := x.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
	if got, want := x.delivered(), "-a.1@11 (11), +a.2@12, +b.1@13"; got != want {
		t.Errorf("delivered %s, want %s", got, want)
	}
	if found, err := d.announced(); err != nil || len(found) != 0 {
		t.Errorf("%d announcements are left, %v", len(found), err)
	}
}

// TestDeletedBeforeTheNextRun checks that announced events are delivered after a crash
// from the announcement if the history has expired.
// TestLongNames stores objects whose names are longer than a key of the file may be.
func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	long, longer := strings.Repeat("a", 40_000), strings.Repeat("a", 40_001)
	x := newTestStream(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, long+".1@5", longer+".1@6")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	index := openIndex(t, dir)
	names := map[string]bool{}
	if err := index.Objects(func(o Object) error { names[o.Key().Name] = true; return nil }); err != nil || !names[long] ||
		!names[longer] || len(names) != 2 {
		t.Errorf("%d names, %v", len(names), err)
	}
	if err := index.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTestStream(t, openDisk(t, dir), Options{})
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 20}, 20, long+".1@12")
	want := fmt.Sprintf("gap 10-20 downtime, ~%s.1@12, -%s.1@6 (20), synced 20 #1", long, longer)
	if got := x.delivered(); got != want {
		t.Errorf("delivered %d bytes, want %d: %.50s … %s", len(got), len(want), got, got[max(0, len(got)-50):])
	}
}

func TestDeletedBeforeTheNextRun(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTestStream(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5", "z.1@6")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, dir)
	s, err := New(NDJSON(fullWriter{}, "things"), d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(context.Background(), batch(10, 14, "-a.1@11", "+a.2@12", "+b.1@13", "+c.1@14")); err == nil {
		t.Fatal("no error")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTestStream(t, openDisk(t, dir), Options{})
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 20}, 20, "c.1@14", "z.1@6")
	want := "gap 10-20 downtime, -a.1@11 (11), +c.1@14, -a.2@12 (20), -b.1@13 (20), synced 20 #2"
	if got := x.delivered(); got != want {
		t.Errorf("delivered %s\nwant %s", got, want)
	}
}
