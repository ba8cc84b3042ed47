package store

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) { os.Exit(await.Tests(m)) }

func red(o keepwatch.Object) bool { return o.(*thing).color == "red" }

// nothing bounds the window to the newest entry, so a watcher that is further behind
// receives a gap.
var nothing = Options{WindowBytes: 1}

func TestWatchWithinTheWindow(t *testing.T) {
	a, b := thingAt("a", 3), thingAt("b", 5)
	s := listed(t, Options{}, 10, a, b)
	apply(t, s, 12, modify(a.at(11)), add(thingAt("c", 12)))
	apply(t, s, 13)
	apply(t, s, 16, modify(a.at(14)), modify(b.at(15)), del(a, 16))
	first, second := "MODIFIED@11 ns/a a-1@11; ADDED@12 ns/c c-1@12",
		"MODIFIED@14 ns/a a-1@14; MODIFIED@15 ns/b b-1@15; DELETED@16 ns/a a-1@16"
	for from, want := range map[keepwatch.Revision][]string{
		10: {"batch 10-12; " + first, "batch 12-16; " + second},
		11: {"batch 11-12; ADDED@12 ns/c c-1@12", "batch 12-16; " + second},
		12: {"batch 12-16; " + second},
		13: {"batch 13-16; " + second},
		14: {"batch 14-16; MODIFIED@15 ns/b b-1@15; DELETED@16 ns/a a-1@16"},
		15: {"batch 15-16; DELETED@16 ns/a a-1@16"},
		16: {},
		20: {}, // in the future
		0:  {"gap 0-16 expired; ADDED@15 ns/b b-1@15; ADDED@12 ns/c c-1@12"},
	} {
		w := s.Watch(Cursor{Revision: from}, Filter{})
		wantLines(t, lines(poll(t, w)...), want...)
		if w.Cursor().Revision != max(from, 16) {
			t.Errorf("from %d the cursor is at %d", from, w.Cursor().Revision)
		}
	}
}

// A watcher at a future revision waits for it, and receives the events after it.
func TestWatchFromTheFuture(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	w := s.Watch(Cursor{Revision: 3}, Filter{})
	apply(t, s, 2, modify(a.at(2)))
	wantLines(t, lines(poll(t, w)...))
	apply(t, s, 5, modify(a.at(3)), modify(a.at(4)))
	wantLines(t, lines(poll(t, w)...), "batch 3-5; MODIFIED@4 ns/a a-1@4")
}

func TestWatchBookmarks(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	w := s.Watch(Cursor{Revision: 1}, Filter{})
	other := s.Watch(Cursor{Revision: 1}, Filter{Namespace: "other"})
	apply(t, s, 2)
	apply(t, s, 3)
	wantLines(t, lines(poll(t, w)...), "batch 1-3") // one for all at hand
	apply(t, s, 4, modify(a.at(4)))
	apply(t, s, 5)
	apply(t, s, 6, modify(a.at(6)))
	wantLines(t, lines(poll(t, w)...), "batch 3-4; MODIFIED@4 ns/a a-1@4", "batch 4-6; MODIFIED@6 ns/a a-1@6")
	// A bookmark is correct after changes of other objects, too.
	wantLines(t, lines(poll(t, other)...), "batch 1-6")
}

// A source that reads ahead joins a bookmark to the changes before it. For a watcher that has these, or that does not
// see them, the bookmark is left.
func TestWatchBookmarksThatAreJoinedToChanges(t *testing.T) {
	a := thingAt("a", 1)
	filters := map[string]Filter{"everything": {}, "another namespace": {Namespace: "other"},
		"an object": {Namespace: "ns", Name: "a"}, "an object of another namespace": {Namespace: "other", Name: "a"}}
	for name, f := range filters {
		t.Run(name, func(t *testing.T) {
			s := listed(t, Options{}, 1, a)
			idle := s.Watch(Cursor{Revision: 1}, f)
			_, newer, err := idle.TryNext()
			if err != nil {
				t.Fatal(err)
			}
			apply(t, s, 3, modify(a.at(2)))
			if !signaled(newer) {
				t.Error("not woken for the bookmark")
			}
			joined := "batch 1-3"
			if f.Namespace != "other" {
				joined += "; MODIFIED@2 ns/a a-1@2"
			}
			wantLines(t, lines(poll(t, idle)...), joined)
			wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 2}, f))...), "batch 2-3")
		})
	}
}

// What a view does not see moves the cursor but makes no delivery; the next one
// starts where the last one ended (P1).
func TestWatchDeliveriesAreContiguous(t *testing.T) {
	a, b := thingAt("a", 1), thingAt("b", 1).in("other")
	s := listed(t, Options{}, 1, a, b)
	w := s.Watch(Cursor{Revision: 1}, Filter{Namespace: "ns"})
	apply(t, s, 2, modify(b.at(2)))
	wantLines(t, lines(poll(t, w)...))
	if w.Cursor().Revision != 2 {
		t.Fatalf("the cursor is at %v", w.Cursor())
	}
	apply(t, s, 3, modify(a.at(3)))
	wantLines(t, lines(poll(t, w)...), "batch 1-3; MODIFIED@3 ns/a a-1@3")
	apply(t, s, 4, modify(b.at(4)))
	wantLines(t, lines(poll(t, w)...))
	relist(t, s, keepwatch.GapExpired, 6, a.at(6), b.at(4))
	wantLines(t, lines(poll(t, w)...), "gap 3-6 expired; MODIFIED@6 ns/a a-1@6")
}

// TestWatchFilterEdges: entering the view is Added, leaving it Deleted with the
// state before and the event's revision (P10).
func TestWatchFilterEdges(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	w := s.Watch(Cursor{Revision: 1}, Filter{Match: red})
	apply(t, s, 2, modify(a.at(2).painted("red")))
	apply(t, s, 3, modify(a.at(3).painted("red")))
	apply(t, s, 4, modify(a.at(4)))
	apply(t, s, 5, modify(a.at(5)))
	apply(t, s, 6, modify(a.at(6).painted("red")))
	apply(t, s, 7, modify(a.withUID("a-2").at(7).painted("red")))
	apply(t, s, 8, modify(a.withUID("a-3").at(8)))
	apply(t, s, 9, modify(a.withUID("a-3").at(9).painted("red")))
	apply(t, s, 10, del(a.withUID("a-3").painted("red"), 10))
	apply(t, s, 12, add(a.withUID("a-4").at(11)), del(a.withUID("a-4"), 12))
	wantLines(t, lines(poll(t, w)...),
		"batch 1-2; ADDED@2 ns/a a-1@2",
		"batch 2-3; MODIFIED@3 ns/a a-1@3",
		"batch 3-4; DELETED@4 ns/a a-1@3",
		"batch 4-6; ADDED@6 ns/a a-1@6",
		"batch 6-7; DELETED@7 ns/a a-1@6; ADDED@7 ns/a a-2@7",
		"batch 7-8; DELETED@8 ns/a a-2@7",
		"batch 8-9; ADDED@9 ns/a a-3@9",
		"batch 9-10; DELETED@10 ns/a a-3@10")
}

// TestWatchFilterEdgesInAGap: the revision at which an object left the filter is not
// known, only that it left until the end. After a rewind its state may even be older.
func TestWatchFilterEdgesInAGap(t *testing.T) {
	a, b := thingAt("a", 1).painted("red"), thingAt("b", 1)
	s := listed(t, Options{}, 5, a.at(5), b)
	w := s.Watch(Cursor{Revision: 5}, Filter{Match: red})
	relist(t, s, keepwatch.GapExpired, 9, a.at(7).painted("blue"), b.at(8).painted("red"))
	wantLines(t, lines(poll(t, w)...), "gap 5-9 expired; DELETED@9 ns/a a-1@5; ADDED@8 ns/b b-1@8")
	relist(t, s, keepwatch.GapRewind, 4, a.at(3), b.at(2))
	wantLines(t, lines(poll(t, w)...), "gap 9-4 rewind; ADDED@3 ns/a a-1@3; DELETED@4 ns/b b-1@8")
}

func TestWatchByKey(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a, a.in("ns1"), a.in("ns11"), thingAt("b", 1).in("ns1"))
	for want, f := range map[string]Filter{
		"gap 0-1 expired; ADDED@1 ns1/a a-1@1; ADDED@1 ns1/b b-1@1":                      {Namespace: "ns1"},
		"gap 0-1 expired; ADDED@1 ns/a a-1@1; ADDED@1 ns1/a a-1@1; ADDED@1 ns11/a a-1@1": {Name: "a"},
		"gap 0-1 expired; ADDED@1 ns11/a a-1@1":                                          {Namespace: "ns11", Name: "a"},
		"gap 0-1 expired":                                                                {Namespace: "n"},
	} {
		wantLines(t, lines(poll(t, s.Watch(Cursor{}, f))...), want)
	}
}

// TestWatchBehindTheWindow checks the difference from tombstones and tree.
func TestWatchBehindTheWindow(t *testing.T) {
	a, b, c := thingAt("a", 1), thingAt("b", 2), thingAt("c", 3)
	s := listed(t, nothing, 5, a, b, c)
	apply(t, s, 6, modify(a.at(6)))
	apply(t, s, 7, del(b, 7))
	apply(t, s, 8, add(b.withUID("b-2").at(8)))
	apply(t, s, 9, add(thingAt("d", 9)))
	apply(t, s, 10, del(thingAt("d", 9), 10))
	apply(t, s, 11, add(thingAt("e", 11)))
	if history, difference := s.Bounds(); history != 10 || difference != 5 {
		t.Fatalf("bounds %d, %d", history, difference)
	}
	for from, want := range map[keepwatch.Revision]string{
		5:  "gap 5-11 expired; DELETED@7 ns/b b-1@7; MODIFIED@6 ns/a a-1@6; ADDED@8 ns/b b-2@8; ADDED@11 ns/e e-1@11",
		6:  "gap 6-11 expired; DELETED@7 ns/b b-1@7; ADDED@8 ns/b b-2@8; ADDED@11 ns/e e-1@11",
		8:  "gap 8-11 expired; ADDED@11 ns/e e-1@11",
		9:  "gap 9-11 expired; DELETED@10 ns/d d-1@10; ADDED@11 ns/e e-1@11",
		10: "batch 10-11; ADDED@11 ns/e e-1@11",
	} {
		wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: from}, Filter{}))...), want)
	}
	_, _, err := s.Watch(Cursor{Revision: 4}, Filter{}).TryNext() // before the first list
	wantFailure(t, err, keepwatch.Expired)
}

// Behind the window it is not known which objects matched before. An object that does not
// match is therefore Deleted and not skipped. A filter by key is exact at all times.
func TestWatchBehindTheWindowFiltered(t *testing.T) {
	a, b, c := thingAt("a", 1).painted("red"), thingAt("b", 2), thingAt("c", 3)
	s := listed(t, nothing, 5, a, b, c, a.in("other"), b.in("other"))
	apply(t, s, 6, modify(a.at(6).painted("blue")))       // left the view
	apply(t, s, 7, modify(b.at(7).painted("red")))        // entered it
	apply(t, s, 8, modify(a.in("other").at(8)))           // in another namespace
	apply(t, s, 9, del(b.in("other"), 9))                 // in another namespace
	apply(t, s, 10, del(c, 10))                           // was it in the view?
	apply(t, s, 11, add(thingAt("d", 11)))                // never was in it
	apply(t, s, 12, add(thingAt("e", 12).painted("red"))) // is new in it
	apply(t, s, 13)
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 5}, Filter{Namespace: "ns", Match: red}))...),
		"gap 5-13 expired; DELETED@10 ns/c c-1@10; DELETED@13 ns/a a-1@6; MODIFIED@7 ns/b b-1@7; ADDED@12 ns/e e-1@12")
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 5}, Filter{Namespace: "other"}))...),
		"gap 5-13 expired; DELETED@9 other/b b-1@9; MODIFIED@8 other/a a-1@8")
}

// An object that left the view, and entered it again, is deleted in between. If only a list showed that it had left, no
// revision of the deletion is before that of the state in the view.
func TestWatchBehindTheWindowOfWhatCameBack(t *testing.T) {
	a := thingAt("a", 2).painted("red")
	colored := Options{WindowBytes: 1, Attributes: colors}
	watch := func(s *Store) string { return lines(poll(t, s.Watch(Cursor{Revision: 2}, Filter{Match: red}))...)[0] }

	s := listed(t, colored, 2, a)
	apply(t, s, 3, modify(a.at(3).painted("blue")))
	apply(t, s, 4, modify(a.at(4)))
	apply(t, s, 5, add(thingAt("b", 5)))
	wantLines(t, []string{watch(s)}, "gap 2-5 expired; DELETED@3 ns/a a-1@2; ADDED@4 ns/a a-1@4")

	s = listed(t, colored, 2, a)
	relist(t, s, keepwatch.GapExpired, 3, a.at(3).painted("blue"))
	apply(t, s, 4, modify(a.at(4)))
	apply(t, s, 5, add(thingAt("b", 5)))
	wantLines(t, []string{watch(s)}, "gap 2-5 expired; MODIFIED@4 ns/a a-1@4")
}

func TestWatchExpires(t *testing.T) {
	a, b, c := thingAt("a", 1), thingAt("b", 1), thingAt("c", 1)
	s := listed(t, Options{WindowBytes: 1, Tombstones: 1}, 1, a, b, c)
	apply(t, s, 2, del(a, 2))
	apply(t, s, 3, del(b, 3))
	apply(t, s, 4)
	w := s.Watch(Cursor{Revision: 1}, Filter{})
	_, _, err := w.TryNext()
	wantFailure(t, err, keepwatch.Expired)
	if want := "too old resource version: 1 (3)"; err.Error() != want {
		t.Errorf("the error is %q, want %q", err, want)
	}
	if _, _, again := w.TryNext(); again != err {
		t.Errorf("after its end it returns %v", again)
	}
	if _, again := w.Next(context.Background()); again != err {
		t.Errorf("after its end it returns %v", again)
	}
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 2}, Filter{}))...), "gap 2-4 expired; DELETED@3 ns/b b-1@3")
}

// A cursor within a gap is of another process, which may have an object that this store
// has never had: it must be refused.
func TestWatchFromWithinAGap(t *testing.T) {
	a := thingAt("a", 1)
	for name, o := range map[string]Options{"in the window": {}, "behind it": nothing} {
		t.Run(name, func(t *testing.T) {
			s := listed(t, o, 5, a)
			relist(t, s, keepwatch.GapExpired, 10, a, thingAt("b", 8))
			apply(t, s, 11, del(thingAt("b", 8), 11))
			apply(t, s, 12)
			_, _, err := s.Watch(Cursor{Revision: 7}, Filter{}).TryNext()
			wantFailure(t, err, keepwatch.Expired)
			got := lines(poll(t, s.Watch(Cursor{Revision: 10}, Filter{}))...)
			if name == "behind it" {
				wantLines(t, got, "gap 10-12 expired; DELETED@11 ns/b b-1@11")
				wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 5}, Filter{}))...), "gap 5-12 expired")
				return
			}
			wantLines(t, got, "batch 10-11; DELETED@11 ns/b b-1@11", "batch 11-12")
			wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 5}, Filter{}))...),
				"gap 5-10 expired; ADDED@8 ns/b b-1@8", "batch 10-11; DELETED@11 ns/b b-1@11", "batch 11-12")
		})
	}
}

// A list may have an object older than the state it replaces, because an event was lost. A
// watcher that received that state must receive the object, also behind the window, and
// its later deletion.
func TestWatchOfWhatAListHasHealed(t *testing.T) {
	lost := thingAt("lost", 3)
	s := listed(t, nothing, 5)
	relist(t, s, keepwatch.GapExpired, 10, lost)
	apply(t, s, 11)
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 5}, Filter{}))...), "gap 5-11 expired; ADDED@3 ns/lost lost-1@3")
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 10}, Filter{}))...), "batch 10-11")
	apply(t, s, 12, del(lost, 12))
	apply(t, s, 13)
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 5}, Filter{}))...), "gap 5-13 expired")
	wantLines(t, lines(poll(t, s.Watch(Cursor{Revision: 10}, Filter{}))...),
		"gap 10-13 expired; DELETED@12 ns/lost lost-1@12")
}

func TestWatchThroughARewind(t *testing.T) {
	a, b := thingAt("a", 3), thingAt("b", 8)
	s := listed(t, Options{}, 10, a, b)
	apply(t, s, 12, modify(b.at(12)))
	late, current, future := s.Watch(Cursor{Revision: 10}, Filter{}), s.Watch(Cursor{Revision: 12}, Filter{}),
		s.Watch(Cursor{Revision: 15}, Filter{})
	relist(t, s, keepwatch.GapRewind, 8, a, b)
	apply(t, s, 9, modify(a.at(9)))
	rest := []string{"gap 12-8 rewind; MODIFIED@8 ns/b b-1@8", "batch 8-9; MODIFIED@9 ns/a a-1@9"}
	wantLines(t, lines(poll(t, late)...), append([]string{"batch 10-12; MODIFIED@12 ns/b b-1@12"}, rest...)...)
	wantLines(t, lines(poll(t, current)...), rest...)
	_, _, err := future.TryNext()
	wantFailure(t, err, keepwatch.Expired)
	if current.Cursor() != (Cursor{1, 9}) {
		t.Errorf("the cursor is at %v", current.Cursor())
	}
	// The same numbers of the new epoch.
	wantLines(t, lines(poll(t, s.Watch(Cursor{1, 8}, Filter{}))...), rest[1])
	_, _, err = s.Watch(Cursor{1, 7}, Filter{}).TryNext()
	wantFailure(t, err, keepwatch.Expired)
	wantLines(t, lines(poll(t, s.Watch(Cursor{}, Filter{}))...), "gap 0-9 expired; ADDED@9 ns/a a-1@9; ADDED@8 ns/b b-1@8")
	if history, difference := s.Bounds(); history != 8 || difference != 8 {
		t.Errorf("bounds %d, %d", history, difference)
	}
}

// A cursor of an earlier epoch must not be mistaken for one of the epoch before with an
// equal number.
func TestWatchThroughTwoRewinds(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, nothing, 10, a)
	w := s.Watch(Cursor{Revision: 10}, Filter{})
	relist(t, s, keepwatch.GapRewind, 8, a, thingAt("b", 8))
	apply(t, s, 10, modify(a.at(10)))
	relist(t, s, keepwatch.GapRewind, 9, a, thingAt("b", 8))
	_, _, err := w.TryNext()
	wantFailure(t, err, keepwatch.Expired)
	wantLines(t, lines(poll(t, s.Watch(Cursor{1, 10}, Filter{}))...), "gap 10-9 rewind; MODIFIED@1 ns/a a-1@1")
}

// After a rewind, earlier revisions do not show when an object was created: a watcher that
// has received the object must receive its deletion.
func TestWatchBehindTheWindowAfterARewind(t *testing.T) {
	a, b := thingAt("a", 2), thingAt("b", 3)
	s := listed(t, nothing, 100, a, b) // they count as there since 100
	relist(t, s, keepwatch.GapRewind, 50, a, b.at(4))
	apply(t, s, 60)
	apply(t, s, 70, modify(b.at(70)))
	apply(t, s, 80, del(a, 80))
	apply(t, s, 90)
	wantLines(t, lines(poll(t, s.Watch(Cursor{1, 60}, Filter{}))...),
		"gap 60-90 expired; DELETED@80 ns/a a-1@80; MODIFIED@70 ns/b b-1@70")
}

// A list that shows the current revision in another state begins an epoch: otherwise a
// watcher with the first state would never receive the second.
func TestWatchOfAnotherStateAtTheCurrentRevision(t *testing.T) {
	s := listed(t, Options{}, 10, thingAt("a", 3))
	w := s.Watch(Cursor{Revision: 10}, Filter{})
	relist(t, s, keepwatch.GapExpired, 10, thingAt("a", 3), thingAt("b", 9))
	wantLines(t, lines(poll(t, w)...), "gap 10-10 expired; ADDED@9 ns/b b-1@9")
	apply(t, s, 11, del(thingAt("b", 9), 11))
	wantLines(t, lines(poll(t, w)...), "batch 10-11; DELETED@11 ns/b b-1@11")
}

func TestNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := thingAt("a", 1)
		s := listed(t, Options{}, 1, a)
		got := make(chan keepwatch.Delivery)
		go func() {
			w := s.Watch(Cursor{Revision: 1}, Filter{Name: "a"})
			for range 2 {
				d, err := w.Next(t.Context())
				if err != nil {
					t.Error(err)
				}
				got <- d
			}
		}()
		synctest.Wait()
		apply(t, s, 2, add(thingAt("b", 2))) // wakes it for nothing
		synctest.Wait()
		select {
		case d := <-got:
			t.Fatalf("got %q", lines(d))
		default:
		}
		apply(t, s, 3, modify(a.at(3)))
		wantLines(t, lines(<-got), "batch 1-3; MODIFIED@3 ns/a a-1@3")
		apply(t, s, 4, modify(a.at(4)))
		wantLines(t, lines(<-got), "batch 3-4; MODIFIED@4 ns/a a-1@4")
	})
}

func TestNextIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := thingAt("a", 1)
		s := listed(t, Options{}, 1, a)
		why := errors.New("had enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		w := s.Watch(Cursor{Revision: 1}, Filter{})
		ended := make(chan error)
		go func() {
			_, err := w.Next(ctx)
			ended <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-ended; err != why {
			t.Fatalf("ends with %v", err)
		}
		apply(t, s, 2, modify(a.at(2)))
		if d, err := w.Next(ctx); d != nil || err != why {
			t.Fatalf("when cancelled it returns %v, %v", d, err)
		}
		// The watcher itself is none the worse.
		wantLines(t, lines(poll(t, w)...), "batch 1-2; MODIFIED@2 ns/a a-1@2")
	})
}

func TestAWatcherIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Watcher{}); size > 128 {
		t.Errorf("a watcher takes %d bytes", size)
	}
}

// TestWatchUnreadable: a watcher stops before the revision of a change that its filter
// cannot judge, fails there as long as that is so, and then continues.
func TestWatchUnreadable(t *testing.T) {
	dark := true
	sealed := errors.New("sealed")
	f := Filter{Match: red, Readable: func(o keepwatch.Object) error {
		if dark && o.(*thing).color == "dark" {
			return sealed
		}
		return nil
	}}
	a, b := thingAt("a", 1).painted("red"), thingAt("b", 1)
	began := func(o Options) (*Store, *Watcher) {
		dark = true
		s := listed(t, o, 1, a, b, thingAt("c", 1).in("other"))
		return s, s.Watch(s.Snapshot().Cursor(), f)
	}
	fails := func(w *Watcher, at keepwatch.Revision, change string) {
		t.Helper()
		for range 2 {
			d, _, err := w.TryNext()
			var u *Unreadable
			if d != nil || !errors.As(err, &u) || !errors.Is(err, sealed) || u.Change.Type.String() != change {
				t.Fatalf("got %v, %v", d, err)
			}
		}
		if w.Cursor().Revision != at {
			t.Errorf("the cursor is at %d, want %d", w.Cursor().Revision, at)
		}
	}
	t.Run("history", func(t *testing.T) {
		s, w := began(Options{})
		apply(t, s, 9, modify(a.at(2).painted("red")), modify(b.at(5).painted("red")), modify(a.at(5).painted("dark")),
			modify(a.at(7).painted("blue")), del(b.painted("red"), 8))
		d, _, err := w.TryNext()
		if err != nil {
			t.Fatal(err)
		}
		wantLines(t, lines(d), "batch 1-4; MODIFIED@2 ns/a a-1@2")
		fails(w, 4, "MODIFIED")
		dark = false
		wantLines(t, lines(poll(t, w)...), "batch 4-9; ADDED@5 ns/b b-1@5; DELETED@5 ns/a a-1@2; DELETED@8 ns/b b-1@8")
	})
	t.Run("prior state", func(t *testing.T) {
		s, w := began(Options{})
		dark = false
		apply(t, s, 2, modify(a.at(2).painted("dark")))
		wantLines(t, lines(poll(t, w)...), "batch 1-2; DELETED@2 ns/a a-1@1")
		dark = true
		apply(t, s, 3, del(a.at(2).painted("dark"), 3))
		fails(w, 2, "DELETED")
		all := s.Watch(Cursor{Revision: 2}, Filter{Readable: f.Readable})
		wantLines(t, lines(poll(t, all)...), "batch 2-3; DELETED@3 ns/a a-1@3")
		other := s.Watch(Cursor{Revision: 1}, Filter{Namespace: "other", Match: f.Match, Readable: f.Readable})
		wantLines(t, lines(poll(t, other)...))
	})
	t.Run("gap", func(t *testing.T) {
		s, w := began(Options{})
		relist(t, s, keepwatch.GapExpired, 5, a.at(4).painted("dark"), b.at(5).painted("red"))
		fails(w, 1, "MODIFIED")
		dark = false
		wantLines(t, lines(poll(t, w)...), "gap 1-5 expired; DELETED@5 ns/a a-1@1; ADDED@5 ns/b b-1@5")
	})
	t.Run("behind the window", func(t *testing.T) {
		s, w := began(nothing)
		apply(t, s, 2, modify(a.at(2).painted("dark")))
		apply(t, s, 3, modify(b.at(3).painted("red")))
		fails(w, 1, "MODIFIED")
		dark = false
		if _, _, err := w.TryNext(); err != nil {
			t.Error(err)
		}
	})
}
