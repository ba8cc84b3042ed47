package store

import (
	"context"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// TestInvalidate checks that no history can be applied between Invalidate and the next
// list, and that watchers receive the change once, by the gap.
func TestInvalidate(t *testing.T) {
	type objects = []keepwatch.Object
	a, b, c := thingAt("a", 3), thingAt("b", 5), thingAt("c", 9)
	const expired, downtime, rewind = keepwatch.GapExpired, keepwatch.GapDowntime, keepwatch.GapRewind
	for name, row := range map[string]struct {
		reasons []keepwatch.GapReason
		relist  keepwatch.GapReason
		to      keepwatch.Revision
		objects objects
		history []string // the deliveries of a watcher
		epoch   uint64
	}{
		"rewind": {[]keepwatch.GapReason{rewind}, rewind, 4, objects{a}, []string{"gap 10-4 rewind; DELETED@4 ns/b b-1@5"},
			1},
		"rewind, by another run": {[]keepwatch.GapReason{rewind}, "", 4, objects{a},
			[]string{"gap 10-4 rewind; DELETED@4 ns/b b-1@5"}, 1},
		"passed again": {[]keepwatch.GapReason{rewind}, "", 12, objects{a.painted("red"), b.withUID("b-2").at(4), c},
			[]string{"gap 10-12 rewind; MODIFIED@3 ns/a a-1@3; DELETED@12 ns/b b-1@5; ADDED@4 ns/b b-2@4; ADDED@9 ns/c c-1@9"},
			1},
		"passed again exactly, and nothing differs": {[]keepwatch.GapReason{rewind}, "", 10, objects{a, b},
			[]string{"gap 10-10 rewind"}, 1},
		"not trusted": {[]keepwatch.GapReason{expired}, expired, 12, objects{a, b, c},
			[]string{"gap 10-12 expired; ADDED@9 ns/c c-1@9"}, 0},
		"not trusted, by another run": {[]keepwatch.GapReason{downtime}, "", 12, objects{a, b, c},
			[]string{"gap 10-12 downtime; ADDED@9 ns/c c-1@9"}, 0},
		"not trusted, and it was right": {[]keepwatch.GapReason{expired}, "", 10, objects{a, b}, nil, 0},
		"not trusted, and it is a rewind": {[]keepwatch.GapReason{expired}, rewind, 12, objects{a.at(2)},
			[]string{"gap 10-12 rewind; MODIFIED@2 ns/a a-1@2; DELETED@12 ns/b b-1@5"}, 1},
		"the newest reason counts": {[]keepwatch.GapReason{expired, rewind}, "", 12, objects{a, b},
			[]string{"gap 10-12 rewind"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed(t, Options{}, 10, a, b)
			before := s.Snapshot()
			w := s.Watch(before.Cursor(), Filter{})
			_, news, _ := w.TryNext()
			for _, reason := range row.reasons {
				invalidate(t, s, reason)
			}
			if err := s.AddIndexes(map[string]IndexFunc{"color": func(o keepwatch.Object) []string {
				return []string{o.(*thing).color}
			}}); err != nil {
				t.Fatal(err)
			}
			select {
			case <-news:
				t.Fatal("watchers are woken for nothing")
			default:
			}
			if s.Revision() != 0 || s.Snapshot().Cursor() != before.Cursor() || s.Snapshot().Len() != 2 {
				t.Fatalf("current %d; readers see %d objects at %v", s.Revision(), s.Snapshot().Len(), s.Snapshot().Cursor())
			}
			_, err := s.Apply(t.Context(), batch(10, 11, modify(a.at(11))))
			wantFailure(t, err, keepwatch.InvariantViolation)
			_, err = s.Replace(t.Context(), keepwatch.Relist{})
			wantFailure(t, err, keepwatch.StreamingListUnsupported)
			given, err := s.Replace(t.Context(), keepwatch.Relist{Reason: row.relist, To: row.to})
			wantFailure(t, err, 0)
			given.Discard()
			if s.Revision() != 0 {
				t.Fatal("a discarded list has made the state valid")
			}
			relist(t, s, row.relist, row.to, row.objects...)
			wantLines(t, lines(poll(t, w)...), row.history...)
			if now := s.Snapshot().Cursor(); s.Revision() != row.to || now != (Cursor{row.epoch, row.to}) || w.Cursor() != now {
				t.Fatalf("current %d, the store is at %v, the watcher at %v", s.Revision(), now, w.Cursor())
			}
			apply(t, s, 13, modify(a.at(13)))
			wantLines(t, lines(poll(t, w)...), lines(batch(row.to, 13, modify(a.at(13))))...)
		})
	}
}

// TestInvalidateThenRewind: a list below the state is refused. If it was requested at no revision, it shows
// that the source went back: the caller must then invalidate with that reason.
func TestInvalidateThenRewind(t *testing.T) {
	s := listed(t, Options{}, 10, thingAt("a", 3))
	invalidate(t, s, keepwatch.GapExpired)
	_, err := s.Replace(t.Context(), keepwatch.Relist{To: 9})
	wantFailure(t, err, keepwatch.StaleReplica)
	invalidate(t, s, keepwatch.GapRewind)
	w := s.Watch(s.Snapshot().Cursor(), Filter{})
	relist(t, s, keepwatch.GapRewind, 9, thingAt("a", 4))
	wantLines(t, lines(poll(t, w)...), "gap 10-9 rewind; MODIFIED@4 ns/a a-1@4")
}

// TestVoidOfNothing: a store that was never listed is listed as ever.
func TestInvalidateEmptyStore(t *testing.T) {
	s := New(Options{})
	invalidate(t, s, keepwatch.GapRewind)
	r, err := s.Replace(t.Context(), keepwatch.Relist{})
	wantFailure(t, err, 0)
	wantFailure(t, r.Put(t.Context(), []keepwatch.Object{thingAt("a", 3)}), 0)
	wantFailure(t, r.Commit(t.Context(), 8), 0)
	wantLines(t, lines(poll(t, s.Watch(Cursor{}, Filter{}))...), "gap 0-8 expired; ADDED@3 ns/a a-1@3")
	if s.Revision() != 8 || s.Snapshot().Cursor().Epoch != 0 {
		t.Fatalf("current %d at %v", s.Revision(), s.Snapshot().Cursor())
	}
}

func invalidate(t *testing.T, s *Store, reason keepwatch.GapReason) {
	t.Helper()
	if err := s.Invalidate(context.Background(), reason); err != nil {
		t.Fatal(err)
	}
}
