package stream

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/keepwatch/keepwatch"
)

// redefined returns a thing with another content at its revision.
func redefined(text, note string) keepwatch.Object {
	o := at(text)
	o.note = note
	return o
}

// ids returns the types and ids of the events since the last call, with their notes.
func (x *testStream) ids() string {
	x.t.Helper()
	var events []string
	for text := range strings.Lines(x.lines.String()) {
		l, err := parse(text)
		if err != nil {
			x.t.Fatal(err)
		}
		if l.ID != "" {
			events = append(events, fmt.Sprintf("%s %s %q", l.Type, l.ID, l.Object.Note))
		}
	}
	x.lines.Reset()
	return strings.Join(events, ", ")
}

func (x *testStream) listObjects(to keepwatch.Revision, objects ...keepwatch.Object) {
	x.t.Helper()
	r, err := x.Replace(context.Background(), keepwatch.Relist{To: to, Reason: keepwatch.GapExpired})
	if err != nil {
		x.t.Fatal(err)
	}
	if err := r.Put(context.Background(), objects); err != nil {
		x.t.Fatal(err)
	}
	if err := r.Commit(context.Background(), to); err != nil {
		x.t.Fatal(err)
	}
}

// definedSource is a source whose newest list has shown a definition. continued is the definition that SetDefinition
// received.
type definedSource struct{ shown, continued string }

func (s *definedSource) Definition() string              { return s.shown }
func (s *definedSource) SetDefinition(definition string) { s.continued = definition }

// A state has the definition that has shown its objects, for the source of the next process. One that becomes known is
// stored with the next batch; that of an incomplete list only in a state that is listed again.
func TestDefinitionIsStored(t *testing.T) {
	for kind, state := range states(t) {
		t.Run(kind, func(t *testing.T) {
			source := &definedSource{continued: "none yet"}
			x := newTestStream(t, state(), Options{Source: source})
			restart := func(want string) {
				t.Helper()
				source = &definedSource{shown: source.shown}
				if x = newTestStream(t, x.state, Options{Source: source}); source.continued != want {
					t.Errorf("it continues from definition %q, want %q", source.continued, want)
				}
			}
			x.list(keepwatch.Relist{}, 10, "a.1@5")
			restart("")
			source.shown = "1"
			if _, err := x.Apply(context.Background(), keepwatch.Batch{From: 10, To: 10}); err != nil {
				t.Fatal(err)
			}
			restart("1")
			source.shown = "" // it does not know
			x.listObjects(20, at("a.1@5"))
			restart("1")
			source.shown = "2"
			if _, err := x.Replace(context.Background(), keepwatch.Relist{To: 30, Reason: keepwatch.GapExpired}); err != nil {
				t.Fatal(err)
			}
			if restart("2"); x.Revision() != 0 {
				t.Errorf("it continues at revision %d, without a list in that definition", x.Revision())
			}
		})
	}
}

// A list that shows another content at an equal revision delivers it, once, with an id of its own: the definition of
// the type has changed. A content that comes back has a new id, because consumers ignore those that they have seen.
func TestRedefined(t *testing.T) {
	for kind, state := range states(t) {
		t.Run(kind, func(t *testing.T) {
			x := newTestStream(t, state(), Options{})
			x.list(keepwatch.Relist{}, 10, "a.1@5", "b.1@7")
			x.delivered()
			restart := func() { x = newTestStream(t, x.state, Options{}) }
			seen := map[string]bool{}
			for i, note := range []string{"red", "note 5", "red", "blue"} {
				want := fmt.Sprintf("MODIFIED a.1/5%s %q", Rendition{sumOf(redefined("a.1@5", note).(Object)),
					uint64(i + 1)}.suffix(), note)
				to := keepwatch.Revision(20 + 10*i)
				x.listObjects(to, redefined("a.1@5", note), at("b.1@7"))
				if got := x.ids(); got != want || seen[got] {
					t.Fatalf("delivered %s\nwant %s", got, want)
				}
				seen[want] = true
				if i == 2 {
					restart()
				}
				x.listObjects(to+1, redefined("a.1@5", note), at("b.1@7"))
				if got := x.ids(); got != "" {
					t.Fatalf("the same list again delivered %s", got)
				}
			}
			if _, err := x.Apply(context.Background(), batch(51, 55, "~a.1@53", "-b.1@55")); err != nil {
				t.Fatal(err)
			}
			if got, want := x.ids(), `MODIFIED a.1/53 "note 53", DELETED b.1/55/deleted "note 55"`; got != want {
				t.Errorf("delivered %s\nwant %s", got, want)
			}
		})
	}
}

// Neither the events nor their ids and sums show a value that the projection hides. A change of anything else is
// delivered.
func TestHiddenContent(t *testing.T) {
	hide := func(object []byte) ([]byte, error) {
		return regexp.MustCompile(`secret \w+`).ReplaceAll(object, []byte("REDACTED")), nil
	}
	for kind, state := range states(t) {
		t.Run(kind, func(t *testing.T) {
			x := newTestStream(t, state(), Options{Project: hide})
			sum := func() uint64 {
				r, _, err := x.state.get("default/a")
				if err != nil {
					t.Fatal(err)
				}
				return r.rendition.Sum
			}
			x.listObjects(10, redefined("a.1@5", "secret one"))
			first := sum()
			if got, want := x.ids(), `ADDED a.1/5 "REDACTED"`; got != want || first == 0 {
				t.Errorf("delivered %s, sum %d, want %s", got, first, want)
			}
			x.listObjects(20, redefined("a.1@5", "secret two"))
			if got := x.ids(); got != "" || sum() != first {
				t.Errorf("delivered %s, sum %d, want nothing and %d", got, sum(), first)
			}
			x.listObjects(30, redefined("a.1@5", "not secret three"))
			if got, want := x.ids(), fmt.Sprintf(`MODIFIED a.1/5/1-%016x "not REDACTED"`, sum()); got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}
			c := keepwatch.Change{Type: keepwatch.Deleted, Revision: 35, Object: redefined("a.1@35", "secret four")}
			if _, err := x.Apply(context.Background(), keepwatch.Batch{From: 30, To: 35,
				Changes: []keepwatch.Change{c}}); err != nil {
				t.Fatal(err)
			}
			if got, want := x.ids(), `DELETED a.1/35/deleted "REDACTED"`; got != want {
				t.Errorf("delivered %s, want %s", got, want)
			}
		})
	}
}

// A delivery that a crash has cut off is repeated with the same id.
func TestRedefinedOverACrash(t *testing.T) {
	state := InMemory()
	x := newTestStream(t, state, Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	x.delivered()
	put := func() string {
		r, err := x.Replace(context.Background(), keepwatch.Relist{To: 20, Reason: keepwatch.GapExpired})
		if err != nil {
			t.Fatal(err)
		}
		d := x.newDelivery()
		if err := r.(*replacement).compare(d, redefined("a.1@5", "red").(Object)); err != nil {
			t.Fatal(err)
		}
		return d.messages[0].(Event).ID // it is written, and not committed
	}
	first := put()
	x = newTestStream(t, state, Options{})
	if again := put(); again != first || !strings.HasPrefix(first, "a.1/5/1-") {
		t.Errorf("the id is %s, and again %s", first, again)
	}
}

// The type in front of an object is no content: a list of a built-in kind does not have it. Of an object that was sent
// in part the content is not known.
func TestSum(t *testing.T) {
	sum := func(text string) uint64 { return sumOf(lastKnown{record: record{metadata: []byte(text)}}) }
	want := sum(`{"metadata":{"name":"a"},"data":{"d":"7"}}`)
	for _, text := range []string{
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"d":"7"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"d":"7"}}`,
	} {
		if got := sum(text); got != want || got == 0 {
			t.Errorf("%s has the sum %x, want %x", text, got, want)
		}
	}
	if sum(`{"metadata":{"name":"a"},"data":{"d":"8"}}`) == want {
		t.Error("another content has the same sum")
	}
	for _, text := range []string{"", `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{}}`,
		`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{}}`} {
		if got := sum(text); got != 0 {
			t.Errorf("%q has the sum %x", text, got)
		}
	}
}

// A state of format 1 has no sums: the first list adds them and delivers nothing, and the next other content is
// delivered.
func TestStateWithoutSums(t *testing.T) {
	dir := t.TempDir()
	open := func() State {
		s, err := Open(dir, Identity{Resource: "things"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	x := newTestStream(t, open(), Options{})
	x.list(keepwatch.Relist{}, 10, "a.1@5")
	r, _, err := x.state.get("default/a")
	if err != nil || r.rendition.Sum == 0 {
		t.Fatalf("the record is %+v, %v", r, err)
	}
	r.rendition = Rendition{}
	err = x.state.(*disk).db.Update(func(tx *bolt.Tx) error {
		if err := tx.Bucket(recordsBucket).Put([]byte("default/a"), r.encode()); err != nil {
			return err
		}
		return tx.Bucket(headBucket).Put(formatKey, []byte("1"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.state.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTestStream(t, open(), Options{})
	x.listObjects(20, redefined("a.1@5", "red"))
	if got := x.ids(); got != "" {
		t.Errorf("delivered %s", got)
	}
	if err := x.state.Close(); err != nil {
		t.Fatal(err)
	}
	x = newTestStream(t, open(), Options{})
	x.listObjects(30, redefined("a.1@5", "blue"))
	if got := x.ids(); !strings.HasPrefix(got, "MODIFIED a.1/5/1-") {
		t.Errorf("delivered %s", got)
	}
	if err := x.state.Close(); err != nil {
		t.Fatal(err)
	}
}
