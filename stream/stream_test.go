package stream

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// TestRestart: a run that goes on is synced with the first bookmark, and not
// before it has told as much as the run before it.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTeller(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if err := d.announce(nil, 13); err != nil { // a piece up to 13 was perhaps told
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	x = newTeller(t, openDisk(t, dir), Options{Bookmarks: true})
	if x.Revision() != 10 {
		t.Fatalf("held %d", x.Revision())
	}
	for _, step := range []struct {
		batch keepwatch.Batch
		told  string
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
		if got := x.told(); got != step.told {
			t.Errorf("%+v was told as %s, want %s", step.batch, got, step.told)
		}
	}
}

// TestRestartWithNothingNew: that the source has nothing newer than what is held
// is proof enough.
func TestRestartWithNothingNew(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	newTeller(t, d, Options{}).list(keepwatch.Relist{}, 10, "a.1@5")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	synced := 0
	x := newTeller(t, openDisk(t, dir), Options{Synced: func() { synced++ }})
	for range 2 {
		if _, err := x.Apply(context.Background(), batch(10, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := x.told(), "synced 10 #1"; got != want || synced != 1 {
		t.Errorf("told %s, %d times; want %s, once", got, synced, want)
	}
}

// TestSyncedIsCommitted: Synced is called when a SYNCED is on disk, and not when
// it could not be put there.
func TestSyncedIsCommitted(t *testing.T) {
	state := &forgetful{State: InMemory()}
	var committed []keepwatch.Revision
	x := newTeller(t, state, Options{Synced: func() { committed = append(committed, state.position().Cursor) }})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if _, err := x.Apply(context.Background(), batch(10, 11, "~a.1@11")); err != nil {
		t.Fatal(err)
	}
	x.list(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}, 20, "a.1@11")
	if want := []keepwatch.Revision{10, 20}; !slices.Equal(committed, want) {
		t.Errorf("committed at %v, want %v", committed, want)
	}

	r := x.begin(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 30}, "a.1@11")
	x.told()
	state.full = true
	if err := r.Commit(context.Background(), 30); !errors.Is(err, errDeaf) {
		t.Errorf("got %v", err)
	}
	if got, want := x.told(), "synced 30 #1"; got != want || len(committed) != 2 {
		t.Errorf("told %s, want %s; reported %v", got, want, committed)
	}
}

// forgetful is a state that can't be written once it is full.
type forgetful struct {
	State
	full bool
}

func (f *forgetful) commit(piece commit) error {
	if f.full {
		return errDeaf
	}
	return f.State.commit(piece)
}

// TestShownInPart: what a server shows in part is remembered as what it is.
func TestShownInPart(t *testing.T) {
	dir := t.TempDir()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	d := openDisk(t, dir)
	x := newTeller(t, d, Options{Kind: kind})
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
	x = newTeller(t, openDisk(t, dir), Options{Kind: kind})
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 20}, 20)
	got := x.lines.String()
	for _, want := range []string{
		`"object":{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"default","name":"a",`,
		`"object":{"apiVersion":"v1","kind":"Thing","metadata":{"namespace":"default","name":"b",`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("told %s, want %s", got, want)
		}
	}
}

// partial is a thing of which the server shows the metadata only.
type partial struct{ thing }

func (o partial) JSON() []byte { return o.Metadata() }

func (o partial) Metadata() []byte {
	return bytes.Replace(o.thing.Metadata(), []byte(`"apiVersion":"v1","kind":"Thing"`),
		[]byte(`"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata"`), 1)
}

// TestRestartWithinAGap goes on with a list, though the history may be back: it
// could contradict what the difference has told.
func TestRestartWithinAGap(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTeller(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	x.begin(keepwatch.Relist{Reason: keepwatch.GapExpired, To: 20}, "a.1@18")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTeller(t, openDisk(t, dir), Options{})
	if x.Revision() != 0 {
		t.Fatalf("held %d, want 0: a list is due", x.Revision())
	}
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 21}, 21, "a.1@18")
	if got, want := x.told(), "gap 10-21 downtime, synced 21 #1"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// deaf is an output that nothing gets through to.
type deaf struct{}

var errDeaf = errors.New("no space left on device")

func (deaf) Write([]byte) (int, error) { return 0, errDeaf }

// TestFailingOutput ends the stream with the output's error and commits nothing;
// starting again and again for nothing does not fill the state.
func TestFailingOutput(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTeller(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	piece := batch(10, 13, "-a.1@11", "+a.2@12", "+b.1@13")
	for range 5 {
		d := openDisk(t, dir)
		s, err := New(NDJSON(deaf{}, "things"), d, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Apply(context.Background(), piece); !errors.Is(err, errDeaf) || kindOf(err) != 0 {
			t.Fatalf("got %v", err)
		}
		if s.Revision() != 10 {
			t.Errorf("held %d", s.Revision())
		}
		if found, err := d.announced(); err != nil || len(found) != 3 {
			t.Errorf("%d announcements, %v", len(found), err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d = openDisk(t, dir)
	x = newTeller(t, d, Options{})
	if _, err := x.Apply(context.Background(), piece); err != nil {
		t.Fatal(err)
	}
	if got, want := x.told(), "-a.1@11 (11), +a.2@12, +b.1@13"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	if found, err := d.announced(); err != nil || len(found) != 0 {
		t.Errorf("%d announcements are left, %v", len(found), err)
	}
}

// TestDeletedBeforeTheNextRun: what a crash left open is told to its end, from
// the announcement, when the history is gone.
func TestDeletedBeforeTheNextRun(t *testing.T) {
	dir := t.TempDir()
	d := openDisk(t, dir)
	x := newTeller(t, d, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5", "z.1@6")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, dir)
	s, err := New(NDJSON(deaf{}, "things"), d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(context.Background(), batch(10, 14, "-a.1@11", "+a.2@12", "+b.1@13", "+c.1@14")); err == nil {
		t.Fatal("no error")
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTeller(t, openDisk(t, dir), Options{})
	x.list(keepwatch.Relist{Reason: keepwatch.GapDowntime, To: 20}, 20, "c.1@14", "z.1@6")
	want := "gap 10-20 downtime, -a.1@11 (11), +c.1@14, -a.2@12 (20), -b.1@13 (20), synced 20 #2"
	if got := x.told(); got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}
