package store

import (
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
		0: keepwatch.Expired, 9: keepwatch.Expired, 15: keepwatch.Expired, 19: keepwatch.Expired, 23: keepwatch.RevisionTooLarge,
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
		w := newWorld(Options{WindowBytes: 40 * (logEntryBytes + changeBytes + 1), Size: func(keepwatch.Object) int { return 1 }})
		w.list(t, "")
		current := map[keepwatch.Revision]state{w.store.Revision(): maps.Clone(w.state)}
		for range rapid.IntRange(1, 30).Draw(t, "batches") {
			w.commit(t)
			w.send(t, len(w.log))
			current[w.store.Revision()] = maps.Clone(w.state)
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
