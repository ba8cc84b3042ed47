package store

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

func TestAtShowsThePast(t *testing.T) {
	a, b := thingAt("a", 3), thingAt("b", 5)
	s := listed(t, Options{}, 10, a, b)
	apply(t, s, 14, modify(a.at(11)), del(b, 12), add(b.withUID("b-2").at(13)), modify(a.withUID("a-2").at(14)))
	relist(t, s, keepwatch.GapExpired, 20, a.withUID("a-2").at(14), thingAt("c", 17))
	apply(t, s, 22, add(thingAt("d", 22)))
	for r, want := range map[keepwatch.Revision][]string{
		10: {"ns/a a-1 3 ", "ns/b b-1 5 "},
		11: {"ns/a a-1 11 ", "ns/b b-1 5 "},
		12: {"ns/a a-1 11 "},
		13: {"ns/a a-1 11 ", "ns/b b-2 13 "},
		14: {"ns/a a-2 14 ", "ns/b b-2 13 "},
		20: {"ns/a a-2 14 ", "ns/c c-1 17 "},
		21: {"ns/a a-2 14 ", "ns/c c-1 17 "},
		22: {"ns/a a-2 14 ", "ns/c c-1 17 ", "ns/d d-1 22 "},
	} {
		past, err := s.At(r)
		if err != nil {
			t.Fatalf("at %d: %v", r, err)
		}
		var got []string
		for o := range past.All() {
			got = append(got, o.(*thing).String())
		}
		wantLines(t, got, want...)
		if past.Cursor() != (Cursor{Revision: r}) || digest(past.Digest()) != recomputed(past) {
			t.Errorf("at %d: cursor %v", r, past.Cursor())
		}
	}
	for r, kind := range map[keepwatch.Revision]keepwatch.FailureKind{
		0: keepwatch.Expired, 9: keepwatch.Expired, 15: keepwatch.Expired, 19: keepwatch.Expired,
		23: keepwatch.RevisionTooLarge,
	} {
		_, err := s.At(r)
		wantFailure(t, err, kind)
	}
	relist(t, s, keepwatch.GapRewind, 14)
	for _, r := range []keepwatch.Revision{10, 13} {
		_, err := s.At(r)
		wantFailure(t, err, keepwatch.Expired) // of another epoch
	}
}

// A list that repairs a missed event adds an object at the list's revision, whatever the
// object's own revision.
func TestAtBeforeAHealingList(t *testing.T) {
	s := listed(t, Options{}, 5)
	relist(t, s, keepwatch.GapExpired, 10, thingAt("lost", 3))
	apply(t, s, 11)
	past, err := s.At(5)
	if err != nil || past.Len() != 0 {
		t.Fatalf("at 5: %d objects, %v", past.Len(), err)
	}
}

func TestAtOfAnEmptyStore(t *testing.T) {
	_, err := New(Options{}).At(1)
	wantFailure(t, err, keepwatch.RevisionTooLarge)
	_, err = New(Options{}).At(0)
	wantFailure(t, err, keepwatch.Expired)
}

// Every state of the window is the one that was, and its difference to now is
// found without looking at the rest.
func TestAtIsTheStateOfThen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Options{WindowBytes: 40 * (logEntryBytes + changeBytes + 1), Size: func(keepwatch.Object) int {
			return 1
		}})
		w.list(t, "")
		current := map[keepwatch.Revision]state{w.store.Revision(): maps.Clone(w.state)}
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			w.commit(t)
			w.send(t, len(w.log))
			current[w.store.Revision()] = maps.Clone(w.state)
			if rapid.Bool().Draw(t, "read the past") { // which is cached
				_, _ = w.store.At(keepwatch.Revision(rapid.IntRange(1, int(w.store.Revision())).Draw(t, "past")))
			}
		}
		history, _ := w.store.Bounds()
		for r, want := range current {
			past, err := w.store.At(r)
			if r < history {
				if failure(err) != keepwatch.Expired {
					t.Fatalf("at %d, behind %d: %v", r, history, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("at %d: %v", r, err)
			}
			inspect(t, past.tree, want)
			if digest(past.Digest()) != recomputed(past) {
				t.Fatalf("at %d: the digest is not that of the content", r)
			}
		}
	})
}

// All pages of a list show one state, which is made once, and kept no longer than the window reaches back to it.
func TestThePastIsMadeOnce(t *testing.T) {
	s := listed(t, Options{WindowBytes: 20 * (logEntryBytes + changeBytes + 2), Size: func(keepwatch.Object) int {
		return 1
	}}, 1, thingAt("a", 1))
	at := func(r keepwatch.Revision) *Snapshot {
		t.Helper()
		then, err := s.At(r)
		if err != nil {
			t.Fatal(err)
		}
		return then
	}
	for r := keepwatch.Revision(2); r <= 12; r++ {
		apply(t, s, r, modify(thingAt("a", r)))
	}
	first := at(5)
	for r := keepwatch.Revision(13); r < 16; r++ {
		apply(t, s, r, modify(thingAt("a", r)))
		if at(5) != first {
			t.Fatal("the state was made again")
		}
	}
	for r := keepwatch.Revision(6); r < 6+2*maxPast; r++ {
		at(r)
	}
	if n := len(s.past.states); n != maxPast {
		t.Errorf("%d states are held", n)
	}
	if err := s.AddIndexes(map[string]IndexFunc{"x": func(keepwatch.Object) []string { return nil }}); err != nil {
		t.Fatal(err)
	}
	if _, ok := at(13).Index("x"); !ok {
		t.Error("a state of the past lacks an index")
	}
	for r := keepwatch.Revision(16); r < 60; r++ {
		apply(t, s, r, modify(thingAt("a", r)))
	}
	if n := len(s.past.states); n != 0 {
		t.Errorf("%d states are held that the window does not reach back to", n)
	}
	_, err := s.At(13)
	wantFailure(t, err, keepwatch.Expired)
}

// BenchmarkAt reads the state before 5,000 changes of 100,000 objects, as each page of a list does while others write.
func BenchmarkAt(b *testing.B) {
	const n = 100_000
	s := listed(b, Options{}, n, nThings(n)...)
	for r := keepwatch.Revision(n + 1); r <= n+5_000; r++ {
		apply(b, s, r, modify(thingAt(fmt.Sprintf("%06d", int(r)*17%n), r)))
	}
	began := cpuTime()
	for b.Loop() {
		if _, err := s.At(n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op")
}
