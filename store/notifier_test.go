package store

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
)

// ringing reports whether a channel that TryNext returned is closed.
func signaled(newer <-chan struct{}) bool {
	select {
	case <-newer:
		return true
	default:
		return false
	}
}

// elsewhere is a name in a namespace that share no scope with "ns/a".
func elsewhere(t *testing.T, s *Store) *thing {
	t.Helper()
	own := s.notifiers.scopeAt("ns", "a")
	for i := range scopeCount {
		o := thingAt(fmt.Sprint("other", i), 1).in(fmt.Sprint("elsewhere", i))
		distinct := true
		s.notifiers.inScopes([]keepwatch.Change{add(o)}, false, func(c *scope) {
			distinct = distinct && c != own && c != s.notifiers.scopeAt("ns", "") && c != s.notifiers.scopeAt("", "a")
		})
		if distinct {
			return o
		}
	}
	t.Fatal("every name shares a scope")
	return nil
}

// A watcher of one object or namespace must not be woken for each write to another
// one, must not receive a gap because of them, and must be woken for its own.
func TestAScopedWatcherSleepsWhileOthersChange(t *testing.T) {
	for name, f := range map[string]Filter{
		"object": {Namespace: "ns", Name: "a"}, "namespace": {Namespace: "ns"}, "name": {Name: "a"},
		"content, too": {Namespace: "ns", Match: func(o keepwatch.Object) bool { return o.Key().Name == "a" }},
	} {
		t.Run(name, func(t *testing.T) {
			const current, writes = 100, 10_000
			bytes := int64(current) * (logEntryBytes + changeBytes + 2)
			s := listed(t, Options{WindowBytes: bytes, Size: func(keepwatch.Object) int { return 1 }}, 1, thingAt("a", 1))
			other := elsewhere(t, s)
			w := s.Watch(Cursor{Revision: 1}, f)
			revision, woken := keepwatch.Revision(1), 0
			d, newer, err := w.TryNext()
			for i := range writes {
				revision++
				apply(t, s, revision, add(other.at(revision)))
				if signaled(newer) {
					woken++
					d, newer, err = w.TryNext()
				}
				if d != nil || err != nil {
					t.Fatalf("after %d writes elsewhere the watcher returns %q, %v", i, lines(d), err)
				}
			}
			if most := 4 * writes / current; woken > most {
				t.Errorf("woken %d times by %d writes elsewhere, %d would do for the window's sake", woken, writes, most)
			}
			// The window has turned over more than once since the cursor was here.
			delivered := w.delivered
			apply(t, s, revision+1, modify(thingAt("a", revision+1)))
			if !signaled(newer) {
				t.Fatal("not woken for its own object")
			}
			wantLines(t, lines(poll(t, w)...), fmt.Sprintf("batch %d-%d; MODIFIED@%[2]d ns/a a-1@%[2]d", delivered, revision+1))
		})
	}
}

// Changes of other objects are no gap for a scoped watcher, however late it is called.
func TestAScopedWatcherThatIsPolledLateMissesNothing(t *testing.T) {
	s := listed(t, nothing, 1, thingAt("a", 1))
	other := elsewhere(t, s)
	w := s.Watch(Cursor{Revision: 1}, Filter{Namespace: "ns"})
	wantLines(t, lines(poll(t, w)...))
	for r := keepwatch.Revision(2); r < 50; r++ {
		apply(t, s, r, add(other.at(r)))
	}
	wantLines(t, lines(poll(t, w)...))
	if w.Cursor().Revision != 49 {
		t.Errorf("the cursor is at %v", w.Cursor())
	}
	apply(t, s, 50, modify(thingAt("a", 50)))
	wantLines(t, lines(poll(t, w)...), "batch 1-50; MODIFIED@50 ns/a a-1@50")
}

func TestAScopedWatcherHearsOfBookmarksGapsAndRewinds(t *testing.T) {
	a := thingAt("a", 1)
	s := listed(t, Options{}, 1, a)
	w := s.Watch(Cursor{Revision: 1}, Filter{Namespace: "ns", Name: "a"})
	receives := func(what string, want ...string) {
		t.Helper()
		_, newer, _ := w.TryNext()
		switch what {
		case "bookmark":
			apply(t, s, s.Revision()+1)
		case "gap":
			relist(t, s, keepwatch.GapExpired, s.Revision()+1, a)
		case "rewind":
			relist(t, s, keepwatch.GapRewind, s.Revision()-1, a)
		}
		if !signaled(newer) {
			t.Fatalf("not woken for a %s", what)
		}
		wantLines(t, lines(poll(t, w)...), want...)
	}
	receives("bookmark", "batch 1-2")
	receives("gap", "gap 2-3 expired")
	receives("bookmark", "batch 3-4")
	receives("rewind", "gap 4-3 rewind")
	receives("bookmark", "batch 3-4")
}

// After a quiet time one change makes the window drop the older ones. A watcher that was
// not woken for those must not be behind the window afterwards.
func TestTheWindowRetainsWhatAScopeHasNotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := listed(t, Options{WindowAge: time.Minute}, 1, thingAt("a", 1))
		other := elsewhere(t, s)
		w := s.Watch(Cursor{Revision: 1}, Filter{Namespace: "ns"})
		_, newer, _ := w.TryNext()
		r := keepwatch.Revision(1)
		for slept := false; !slept; {
			if signaled(newer) {
				_, newer, _ = w.TryNext()
			}
			r++
			apply(t, s, r, add(other.at(r)))
			slept = !signaled(newer)
		}
		time.Sleep(time.Hour)
		apply(t, s, r+1, modify(thingAt("a", r+1)))
		if !signaled(newer) {
			t.Fatal("not woken for its own object")
		}
		wantLines(t, lines(poll(t, w)...), fmt.Sprintf("batch 1-%d; MODIFIED@%[1]d ns/a a-1@%[1]d", r+1))
		apply(t, s, r+2, add(other.at(r+2)))
		if n := s.view.Load().window.len(); n != 2 {
			t.Errorf("%d log entries in the window, want the last two", n)
		}
	})
}
