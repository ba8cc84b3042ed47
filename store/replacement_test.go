package store

import (
	"context"
	"testing"

	"github.com/keepwatch/keepwatch"
)

func TestFirstListIsNoHistory(t *testing.T) {
	s := New(Options{})
	w := s.Watch(Cursor{}, Filter{})
	if d := poll(t, w); len(d) != 0 {
		t.Fatalf("before the first list: %q", lines(d...))
	}
	relist(t, s, keepwatch.GapRewind, 9, thingAt("b", 4), thingAt("a", 9))
	if c := s.Snapshot().Cursor(); c != (Cursor{Revision: 9}) {
		t.Fatalf("cursor %v", c)
	}
	if history, difference := s.Bounds(); history != 9 || difference != 9 {
		t.Fatalf("bounds %d, %d", history, difference)
	}
	wantLines(t, lines(poll(t, w)...), "gap 0-9 expired; ADDED@9 ns/a a-1@9; ADDED@4 ns/b b-1@4")
}

// A streaming list has its revision at its end.
func TestStreamedFirstList(t *testing.T) {
	s := New(Options{})
	r, err := s.Replace(context.Background(), keepwatch.Relist{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []*thing{thingAt("b", 4), thingAt("a", 2), thingAt("b", 7)} {
		if err := r.Put(context.Background(), []keepwatch.Object{o}); err != nil {
			t.Fatal(err)
		}
	}
	if s.Revision() != 0 || s.Snapshot().Len() != 0 {
		t.Fatal("the list shows before its commit")
	}
	wantFailure(t, r.Commit(context.Background(), 6), keepwatch.ProtocolViolation) // b is newer than that
	if err := r.Commit(context.Background(), 8); err != nil {
		t.Fatal(err)
	}
	wantLines(t, lines(poll(t, s.Watch(Cursor{}, Filter{}))...), "gap 0-8 expired; ADDED@2 ns/a a-1@2; ADDED@7 ns/b b-1@7")
	apply(t, s, 9, add(thingAt("c", 9)))
	if history, difference := s.Bounds(); history != 8 || difference != 8 {
		t.Fatalf("bounds %d, %d", history, difference)
	}
	_, err = s.Replace(context.Background(), keepwatch.Relist{Reason: keepwatch.GapExpired})
	wantFailure(t, err, keepwatch.InvariantViolation) // only first lists are streamed
}

// TestRelist has a row for each difference between a list and the current state: a@3 and
// b@5 at revision 10.
func TestRelist(t *testing.T) {
	a, b, c := thingAt("a", 3), thingAt("b", 5), thingAt("c", 0)
	expired, rewind := keepwatch.GapExpired, keepwatch.GapRewind
	type objects = []keepwatch.Object
	for name, row := range map[string]struct {
		reason  keepwatch.GapReason
		to      keepwatch.Revision
		objects objects
		history []string // the deliveries of a watcher; none if the list must be refused
		failure keepwatch.FailureKind
		epoch   uint64
	}{
		"unchanged": {expired, 12, objects{a.at(3), b.at(5)}, []string{"gap 10-12 expired"}, 0, 0},
		"added": {expired, 12, objects{a, b, c.at(11)}, []string{"gap 10-12 expired; ADDED@11 ns/c c-1@11"},
			0, 0},
		"modified": {expired, 12, objects{a.at(12), b}, []string{"gap 10-12 expired; MODIFIED@12 ns/a a-1@12"},
			0, 0},
		"deleted": {expired, 12, objects{a}, []string{"gap 10-12 expired; DELETED@12 ns/b b-1@5"}, 0, 0},
		"all deleted": {"downtime", 12, nil,
			[]string{"gap 10-12 downtime; DELETED@12 ns/a a-1@3; DELETED@12 ns/b b-1@5"}, 0, 0},
		"recreated": {expired, 12, objects{a.withUID("a-2").at(11), b},
			[]string{"gap 10-12 expired; DELETED@12 ns/a a-1@3; ADDED@11 ns/a a-2@11"}, 0, 0},
		"twice": {expired, 12, objects{a, b, a, c.at(11), b, c.at(11)},
			[]string{"gap 10-12 expired; ADDED@11 ns/c c-1@11"}, 0, 0},
		"newer the second time": {expired, 12, objects{a, b, a.at(11), c.at(11), c.at(12)},
			[]string{"gap 10-12 expired; MODIFIED@11 ns/a a-1@11; ADDED@12 ns/c c-1@12"}, 0, 0},
		"a new UID the second time": {expired, 12, objects{a, b, c.at(11), c.withUID("c-2").at(12)},
			[]string{"gap 10-12 expired; ADDED@12 ns/c c-2@12"}, 0, 0},
		"what history had lost": {expired, 12, objects{a, b, c.at(7)}, []string{"gap 10-12 expired; ADDED@7 ns/c c-1@7"}, 0,
			0},

		"other content, same revision": {expired, 12, objects{a.painted("red"), b},
			[]string{"gap 10-12 expired; MODIFIED@3 ns/a a-1@3"}, 0, 1},
		"other content, at current": {expired, 10, objects{a.painted("red"), b},
			[]string{"gap 10-10 expired; MODIFIED@3 ns/a a-1@3"}, 0, 1},
		"same revision, can't be compared": {expired, 12, objects{opaque{a}, b}, []string{"gap 10-12 expired"}, 0, 0},
		"other content only the first time": {expired, 12, objects{a.painted("red"), a, b}, []string{"gap 10-12 expired"}, 0,
			0},

		"nothing new": {expired, 10, objects{a, b}, nil, 0, 0},
		"another state at current": {expired, 10, objects{a, b.at(9)}, []string{"gap 10-10 expired; MODIFIED@9 ns/b b-1@9"},
			0, 1},
		"rewind": {rewind, 4, objects{a, c.at(4)},
			[]string{"gap 10-4 rewind; DELETED@4 ns/b b-1@5; ADDED@4 ns/c c-1@4"}, 0, 1},
		"rewind, older states": {rewind, 4, objects{a.at(2)},
			[]string{"gap 10-4 rewind; MODIFIED@2 ns/a a-1@2; DELETED@4 ns/b b-1@5"}, 0, 1},
		"rewind, same numbers": {rewind, 4, objects{a.painted("red")},
			[]string{"gap 10-4 rewind; MODIFIED@3 ns/a a-1@3; DELETED@4 ns/b b-1@5"}, 0, 1},
		"rewind, can't be compared": {rewind, 5, objects{opaque{a}, b}, []string{"gap 10-5 rewind; MODIFIED@3 ns/a a-1@3"}, 0,
			1},
		"rewind and beyond": {rewind, 14, objects{a, b.at(14)}, []string{"gap 10-14 rewind; MODIFIED@14 ns/b b-1@14"},
			0, 1},

		"older object":          {expired, 12, objects{a.at(2), b}, nil, keepwatch.Rewound, 0},
		"older object, new UID": {expired, 12, objects{a.withUID("a-0").at(2), b}, nil, keepwatch.Rewound, 0},
		"another UID at once":   {expired, 12, objects{a.withUID("a-2"), b}, nil, keepwatch.Rewound, 0},
		"two UIDs at once": {expired, 12, objects{a, b, c.at(12), c.withUID("c-2").at(12)}, nil,
			keepwatch.ProtocolViolation, 0},
		"older the second time":  {expired, 12, objects{a, b, c.at(12), c.at(11)}, nil, keepwatch.ProtocolViolation, 0},
		"newer than the list":    {expired, 12, objects{a, b.at(13)}, nil, keepwatch.ProtocolViolation, 0},
		"stale list":             {expired, 9, objects{a, b}, nil, keepwatch.StaleReplica, 0},
		"slash in the namespace": {expired, 12, objects{a.in("a/b")}, nil, keepwatch.ProtocolViolation, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed(t, Options{}, 10, a, b)
			before := s.Snapshot()
			w := s.Watch(before.Cursor(), Filter{})
			wantFailure(t, replace(s, row.reason, row.to, row.objects...), row.failure)
			wantLines(t, lines(poll(t, w)...), row.history...)
			now := s.Snapshot()
			if row.history == nil {
				if now != before {
					t.Fatal("the state has changed")
				}
				return
			}
			if now.Cursor() != (Cursor{row.epoch, row.to}) || w.Cursor() != now.Cursor() {
				t.Fatalf("the store is at %v, the watcher at %v", now.Cursor(), w.Cursor())
			}
			if digest(now.Digest()) != recomputed(now) {
				t.Fatal("the digest is not that of the content")
			}
		})
	}
}

func TestRelistReusesEqualObjects(t *testing.T) {
	a, b := thingAt("a", 3), thingAt("b", 5)
	s := listed(t, Options{}, 10, a, b)
	before := s.Snapshot()
	relist(t, s, keepwatch.GapExpired, 12, a.at(3), b.at(5))
	if s.Snapshot().tree != before.tree {
		t.Fatal("an unchanged list has made a new tree")
	}
}

func TestDiscardChangesNothing(t *testing.T) {
	a, b := thingAt("a", 3), thingAt("b", 5)
	s := listed(t, Options{}, 10, a, b)
	before := s.view.Load()
	r, err := s.Replace(context.Background(), keepwatch.Relist{Reason: keepwatch.GapRewind, To: 4})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(context.Background(), []keepwatch.Object{a.at(4), thingAt("c", 1)}); err != nil {
		t.Fatal(err)
	}
	r.Discard()
	if s.view.Load() != before {
		t.Fatal("a discarded list has been published")
	}
	wantLines(t, namesOf(before.snapshot.All()), "ns/a", "ns/b")
	wantFailure(t, r.Put(context.Background(), nil), keepwatch.InvariantViolation)
	wantFailure(t, r.Commit(context.Background(), 4), keepwatch.InvariantViolation)
	apply(t, s, 11, modify(a.at(11)))
	relist(t, s, keepwatch.GapExpired, 12, b)
}

func TestCommitOnlyOnce(t *testing.T) {
	s := New(Options{})
	r, err := s.Replace(context.Background(), keepwatch.Relist{})
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, r.Commit(context.Background(), 0), keepwatch.ProtocolViolation) // zero is no revision
	if err := r.Commit(context.Background(), 5); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, r.Commit(context.Background(), 6), keepwatch.InvariantViolation)
	wantFailure(t, r.Put(context.Background(), nil), keepwatch.InvariantViolation)
	r.Discard()
	if s.Revision() != 5 {
		t.Fatalf("current %d", s.Revision())
	}
}

func TestCommitAtAnotherRevision(t *testing.T) {
	s := listed(t, Options{}, 5)
	r, err := s.Replace(context.Background(), keepwatch.Relist{Reason: keepwatch.GapExpired, To: 8})
	if err != nil {
		t.Fatal(err)
	}
	wantFailure(t, r.Commit(context.Background(), 9), keepwatch.ProtocolViolation)
}

// A second writer is an error that must be reported: the list would undo its changes.
func TestListUnderWhichTheStateMoved(t *testing.T) {
	a := thingAt("a", 3)
	s := listed(t, Options{}, 10, a)
	r, err := s.Replace(context.Background(), keepwatch.Relist{Reason: keepwatch.GapExpired, To: 12})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, 11, modify(a.at(11)))
	if err := r.Put(context.Background(), []keepwatch.Object{a}); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, r.Commit(context.Background(), 12), keepwatch.InvariantViolation)
	if s.Revision() != 11 {
		t.Fatalf("current %d", s.Revision())
	}
}
