package store

import (
	"context"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// versioned is a thing whose source numbers its writes.
type versioned struct {
	*thing
	version int64
}

func (v versioned) Version() int64 { return v.version }

// TestApply has a row for each rule about the next change. The store has a@3 and b@5 at
// revision 10; c was deleted at 8, listed at 6.
func TestApply(t *testing.T) {
	a, b, c, d := thingAt("a", 3), thingAt("b", 5), thingAt("c", 6), thingAt("d", 0)
	violation := keepwatch.ProtocolViolation
	for name, row := range map[string]struct {
		batch   keepwatch.Batch
		dropped int
		failure keepwatch.FailureKind
		history []string // the deliveries of a watcher
	}{
		"news": {
			batch:   batch(10, 14, modify(a.at(11)), add(d.at(12)), del(b, 14)),
			history: []string{"batch 10-14; MODIFIED@11 ns/a a-1@11; ADDED@12 ns/d d-1@12; DELETED@14 ns/b b-1@14"},
		},
		"several of one revision": {
			batch:   batch(10, 11, modify(a.at(11)), modify(b.at(11))),
			history: []string{"batch 10-11; MODIFIED@11 ns/a a-1@11; MODIFIED@11 ns/b b-1@11"},
		},
		"several of one key": {
			batch:   batch(10, 13, modify(a.at(11)), del(a, 12), add(a.withUID("a-2").at(13))),
			history: []string{"batch 10-13; MODIFIED@11 ns/a a-1@11; DELETED@12 ns/a a-1@12; ADDED@13 ns/a a-2@13"},
		},
		"created and deleted": {
			batch:   batch(10, 12, add(d.at(11)), del(d, 12)),
			history: []string{"batch 10-12; ADDED@11 ns/d d-1@11; DELETED@12 ns/d d-1@12"},
		},
		"bookmark":           {batch: batch(10, 12), history: []string{"batch 10-12"}},
		"bookmark once more": {batch: batch(10, 10)},
		"added though known": {batch: batch(10, 11, add(a.at(11))),
			history: []string{"batch 10-11; MODIFIED@11 ns/a a-1@11"}},
		"new UID, no delete": {batch: batch(10, 11, modify(a.withUID("a-2").at(11))),
			history: []string{"batch 10-11; DELETED@11 ns/a a-1@3; ADDED@11 ns/a a-2@11"}},
		"new UID, as added": {batch: batch(10, 11, add(a.withUID("a-2").at(11))),
			history: []string{"batch 10-11; DELETED@11 ns/a a-1@3; ADDED@11 ns/a a-2@11"}},
		"replaced at once": {batch: batch(10, 11, del(a, 11), add(a.withUID("a-2").at(11))),
			history: []string{"batch 10-11; DELETED@11 ns/a a-1@11; ADDED@11 ns/a a-2@11"}},
		"delete without state": {batch: batch(10, 11, del(a.withUID(""), 11)),
			history: []string{"batch 10-11; DELETED@11 ns/a a-1@3"}},
		"delete, older state": {batch: batch(10, 11, keepwatch.Change{Type: keepwatch.Deleted, Revision: 11, Object: a}),
			history: []string{"batch 10-11; DELETED@11 ns/a a-1@3"}},

		"duplicate":               {batch: batch(10, 10, add(a)), dropped: 1},
		"duplicate with progress": {batch: batch(10, 12, add(a)), dropped: 1, history: []string{"batch 10-12"}},
		"duplicates before news": {batch: batch(2, 12, add(a), add(b), modify(b.at(12))), dropped: 2,
			history: []string{"batch 10-12; MODIFIED@12 ns/b b-1@12"}},
		"duplicate behind news": {batch: batch(10, 12, modify(b.at(12)), add(a)), dropped: 1,
			history: []string{"batch 10-12; MODIFIED@12 ns/b b-1@12"}},
		"twice in a batch": {batch: batch(10, 12, modify(a.at(12)), modify(a.at(12))), dropped: 1,
			history: []string{"batch 10-12; MODIFIED@12 ns/a a-1@12"}},
		"delete twice in a batch": {batch: batch(10, 12, del(a, 12), del(a, 12)), dropped: 1,
			history: []string{"batch 10-12; DELETED@12 ns/a a-1@12"}},
		"all again, and the delete": {batch: batch(10, 12, add(d.at(11)), del(d, 12), add(d.at(11)), del(d, 12)),
			dropped: 2, history: []string{"batch 10-12; ADDED@11 ns/d d-1@11; DELETED@12 ns/d d-1@12"}},
		"an old batch":                     {batch: batch(2, 5, add(a), add(b)), dropped: 2},
		"an old batch of a deleted object": {batch: batch(6, 8, modify(c.at(7)), del(c, 8)), dropped: 2},
		"an old delete before the list":    {batch: batch(1, 2, del(d, 2)), dropped: 1},
		"older state of a key": {batch: batch(10, 12, modify(a.at(2))), dropped: 1,
			history: []string{"batch 10-12"}},
		"older delete of a living key": {batch: batch(10, 12, del(b, 4)), dropped: 1, history: []string{"batch 10-12"}},

		"delete at its last revision": {batch: batch(10, 12, modify(b.at(11)), modify(a.at(12)), del(b.at(11), 11)),
			failure: violation},
		"hole":                          {batch: batch(11, 12, modify(a.at(12))), failure: violation},
		"bookmark behind a hole":        {batch: batch(11, 12), failure: violation},
		"bookmark going back":           {batch: batch(5, 9), failure: violation},
		"ends before it starts":         {batch: batch(10, 9, add(a)), failure: violation},
		"news of the past":              {batch: batch(5, 10, modify(a.at(9))), failure: violation},
		"news of the past, deleted":     {batch: batch(5, 10, del(a, 9)), failure: violation},
		"news at current":               {batch: batch(9, 12, modify(a.at(10))), failure: violation},
		"unknown object of the past":    {batch: batch(7, 12, add(d.at(9))), failure: violation},
		"delete of it":                  {batch: batch(7, 12, del(d, 9)), failure: violation},
		"reorder":                       {batch: batch(10, 12, modify(b.at(12)), modify(a.at(11))), failure: violation},
		"reorder of an unknown object":  {batch: batch(10, 12, modify(b.at(12)), add(d.at(11))), failure: violation},
		"reorder of deletes":            {batch: batch(10, 12, modify(b.at(12)), del(d, 11)), failure: violation},
		"beyond its end":                {batch: batch(10, 12, modify(a.at(13))), failure: violation},
		"unknown delete beyond its end": {batch: batch(10, 12, del(d, 13)), failure: violation},
		"duplicate beyond its end":      {batch: batch(1, 4, add(b)), failure: violation},
		"modified, never added":         {batch: batch(10, 12, modify(d.at(12))), failure: violation},
		"deleted, never added":          {batch: batch(10, 12, del(d, 12)), failure: violation},
		"deletes another UID":           {batch: batch(10, 12, del(a.withUID("a-2"), 12)), failure: violation},
		"no type": {batch: batch(10, 12, keepwatch.Change{Object: a.at(12), Revision: 12}),
			failure: violation},
		"revision not the object's": {batch: batch(10, 12, keepwatch.Change{Type: keepwatch.Modified, Object: a.at(11),
			Revision: 12}), failure: violation},
		"deleted before its last state": {batch: batch(10, 12, keepwatch.Change{Type: keepwatch.Deleted, Object: a.at(12),
			Revision: 11}), failure: violation},
		"revision zero":                   {batch: batch(10, 12, add(d)), failure: violation},
		"slash in the namespace":          {batch: batch(10, 12, add(d.in("a/b").at(12))), failure: violation},
		"good ones before a bad one":      {batch: batch(10, 12, modify(a.at(11)), modify(d.at(12))), failure: violation},
		"resurrected with the same state": {batch: batch(10, 12, add(c)), dropped: 1, history: []string{"batch 10-12"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed(t, Options{}, 6, a, b, c)
			apply(t, s, 10, del(c, 8))
			before := s.Snapshot()
			w := s.Watch(before.Cursor(), Filter{})
			dropped, err := s.Apply(context.Background(), row.batch)
			wantFailure(t, err, row.failure)
			if row.failure != 0 {
				if s.Snapshot() != before {
					t.Fatal("a refused batch has changed the state")
				}
			} else if dropped != row.dropped {
				t.Fatalf("%d dropped, want %d", dropped, row.dropped)
			} else if to := max(row.batch.To, 10); s.Revision() != to {
				t.Fatalf("current %d, want %d", s.Revision(), to)
			}
			wantLines(t, lines(poll(t, w)...), row.history...)
			if now := s.Snapshot(); digest(now.Digest()) != recomputed(now) {
				t.Fatal("the digest is not that of the content")
			}
		})
	}
}

// After a refused batch the right one is applied.
func TestApplyAfterAFailure(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	_, err := s.Apply(context.Background(), batch(1, 5, del(a, 2), modify(thingAt("b", 5))))
	wantFailure(t, err, keepwatch.ProtocolViolation)
	apply(t, s, 5, modify(a.at(2)), add(thingAt("b", 5)))
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 1}, Filter{}))...),
		"batch 1-5; MODIFIED@2 ns/a a-1@2; ADDED@5 ns/b b-1@5")
}

func TestApplyBeforeTheFirstList(t *testing.T) {
	_, err := New(Options{}).Apply(context.Background(), batch(0, 5, add(thingAt("a", 5))))
	wantFailure(t, err, keepwatch.InvariantViolation)
}

// Every change carries the state before it, which no source gives.
func TestApplySetsPrior(t *testing.T) {
	a := thingAt("a", 1)
	a2, a3 := a.at(2), a.withUID("a-2").at(4)
	s := listed(t, Options{}, 1, a)
	apply(t, s, 9, modify(a2), modify(a3), del(a3, 9))
	got := poll(t, s.Watch(Cursor{Revision: 1}, Filter{}))[0].(keepwatch.Batch).Changes
	for i, prior := range []keepwatch.Object{a, a2, nil, a3} {
		if got[i].Prior != prior {
			t.Errorf("prior of change %d is %v, want %v", i, got[i].Prior, prior)
		}
	}
}

// With versions of keys a missed event is detected at the next one of its key.
func TestApplyVersioned(t *testing.T) {
	at := func(r keepwatch.Revision, uid keepwatch.UID, version int64) versioned {
		return versioned{thingAt("a", r).withUID(uid), version}
	}
	for name, row := range map[string]struct {
		next    keepwatch.Change
		failure keepwatch.FailureKind
	}{
		"the next":                   {modify(at(12, "a-1", 4)), 0},
		"one missed":                 {modify(at(12, "a-1", 5)), keepwatch.ProtocolViolation},
		"the same again":             {modify(at(12, "a-1", 3)), keepwatch.ProtocolViolation},
		"created anew":               {add(at(12, "a-2", 1)), 0},
		"created and changed":        {add(at(12, "a-2", 2)), keepwatch.ProtocolViolation},
		"deleted":                    {keepwatch.Change{Type: keepwatch.Deleted, Revision: 12, Object: at(12, "a-1", 3)}, 0},
		"number no longer delivered": {modify(thingAt("a", 12)), 0},
		"0, which is no number":      {modify(at(12, "a-1", 0)), 0},
		"created anew with 0":        {add(at(12, "a-2", 0)), 0},
		"another is created":         {add(versioned{thingAt("b", 12), 1}), 0},
		"another with 0":             {add(versioned{thingAt("b", 12), 0}), 0},
		"another is changed":         {add(versioned{thingAt("b", 12), 2}), keepwatch.ProtocolViolation},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed(t, Options{}, 10, at(9, "a-1", 3))
			_, err := s.Apply(context.Background(), batch(10, 12, row.next))
			wantFailure(t, err, row.failure)
		})
	}
	for name, first := range map[string]keepwatch.Object{"without a number": thingAt("a", 9), "with 0": at(9, "a-1", 0)} {
		t.Run("the first after one "+name, func(t *testing.T) {
			apply(t, listed(t, Options{}, 10, first), 12, modify(at(12, "a-1", 7)))
		})
	}
}

// A replay of deletions below the tombstones' horizon is dropped, too.
func TestApplyOldDeletesBehindTheHorizon(t *testing.T) {
	a, b, c := thingAt("a", 1), thingAt("b", 1), thingAt("c", 1)
	s := listed(t, Options{Tombstones: 1}, 1, a, b, c)
	apply(t, s, 4, del(a, 2), del(b, 3), del(c, 4))
	dropped, err := s.Apply(context.Background(), batch(1, 5, del(a, 2), del(b, 3), del(c, 4),
		add(a.withUID("a-2").at(5))))
	if err != nil || dropped != 3 {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
}

// A replay with an earlier UID is recognized by the deletion of a later one.
func TestApplyOldUIDOfADeletedName(t *testing.T) {
	a, b := thingAt("a", 1), thingAt("b", 1)
	s := listed(t, Options{Tombstones: 1}, 1, a, b)
	apply(t, s, 9, del(a, 2), add(a.withUID("a-2").at(3)), del(b, 4), del(a.withUID("a-2"), 5))
	dropped, err := s.Apply(context.Background(), batch(1, 9, modify(a.at(2))))
	if err != nil || dropped != 1 {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
}

// A replay of an object that was created and deleted within a gap is dropped, too.
func TestApplyOldDeletesWithinAGap(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	relist(t, s, keepwatch.GapExpired, 20)
	dropped, err := s.Apply(context.Background(), batch(10, 21, del(a, 12), del(thingAt("b", 0), 20)))
	if err != nil || dropped != 2 {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
}

// What a consumer appends to a delivery must not show up in another's.
func TestDeliveriesHaveNoRoom(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	if _, err := s.Apply(context.Background(), batch(1, 3, add(a), modify(a.at(2)), add(thingAt("b", 3)))); err != nil {
		t.Fatal(err)
	}
	relist(t, s, keepwatch.GapExpired, 7, thingAt("b", 5), thingAt("c", 6), thingAt("d", 7))
	for _, d := range poll(t, s.Watch(Cursor{Revision: 1}, Filter{})) {
		changes := logEntry{delivery: d}.changes()
		if len(changes) == 0 || cap(changes) != len(changes) {
			t.Errorf("%d changes with room for %d", len(changes), cap(changes))
		}
	}
}
