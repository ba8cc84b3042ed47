package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
)

// colorOf judges every thing.
func colorOf(o keepwatch.Object, _ string) (string, bool) { return o.(*thing).color, true }

// ofColor selects the things of a color, by term.
func ofColor(color string) Filter {
	return Filter{
		Match: func(o keepwatch.Object) bool { return o.(*thing).color == color },
		Term:  &Term{"color", color},
	}
}

// otherColor returns a color of another scope than that of some colors.
func otherColor(colors ...string) string {
	t := &term{}
	for i := 0; ; i++ {
		other, distinct := fmt.Sprint("color", i), true
		for _, color := range colors {
			distinct = distinct && t.scope(other) != t.scope(color)
		}
		if distinct {
			return other
		}
	}
}

// A watcher of a color must not be woken for each write of another one, and must be woken for an object that gets the
// color, has it, and loses it.
func TestAWatcherByTermSleepsWhileOthersChange(t *testing.T) {
	const current, writes = 100, 10_000
	bytes := int64(current) * (logEntryBytes + changeBytes + 2)
	s := listed(t, Options{WindowBytes: bytes, Size: func(keepwatch.Object) int { return 1 }, Term: colorOf}, 1,
		thingAt("a", 1).painted("red"))
	blue := otherColor("red")
	w := s.Watch(Cursor{Revision: 1}, ofColor("red"))
	woken := 0
	_, newer, _ := w.TryNext()
	r := keepwatch.Revision(1)
	for range writes {
		r++
		apply(t, s, r, add(thingAt("b", r).painted(blue)))
		if !signaled(newer) {
			continue
		}
		woken++
		var d keepwatch.Delivery
		var err error
		if d, newer, err = w.TryNext(); d != nil || err != nil {
			t.Fatalf("after other writes the watcher returns %q, %v", lines(d), err)
		}
	}
	if most := 4 * writes / current; woken > most {
		t.Errorf("woken %d times by %d writes of another color, %d would do for the window's sake", woken, writes, most)
	}
	for _, step := range []struct {
		color string
		want  keepwatch.ChangeType
	}{{"red", keepwatch.Added}, {"red", keepwatch.Modified}, {blue, keepwatch.Deleted}} {
		r++
		apply(t, s, r, modify(thingAt("b", r).painted(step.color)))
		if !signaled(newer) {
			t.Fatalf("not woken for an object that is %s now", step.color)
		}
		d, _, err := w.TryNext()
		if got := (logEntry{delivery: d}).changes(); err != nil || len(got) != 1 || got[0].Type != step.want ||
			got[0].Revision != r {
			t.Fatalf("the watcher returns %q, %v; want %s at %d", lines(d), err, step.want, r)
		}
		_, newer, _ = w.TryNext()
	}
}

// A watcher that was not called for a long time finds its changes without a search; with more of them than a scope
// records, it searches. The twin has no term.
func TestAWatcherByTermThatIsPolledLateMissesNothing(t *testing.T) {
	blue := otherColor("red")
	for n := range 2 * recentChanges {
		s := listed(t, Options{Term: colorOf}, 1)
		twin := ofColor("red")
		twin.Term = nil
		w, all := s.Watch(Cursor{Revision: 1}, ofColor("red")), s.Watch(Cursor{Revision: 1}, twin)
		wantLines(t, lines(poll(t, w)...))
		r := keepwatch.Revision(1)
		for i := range 100 {
			r++
			color := blue
			if i%7 == 3 && i/7 < n {
				color = "red"
			}
			apply(t, s, r, add(thingAt(fmt.Sprint("o", i), r).painted(color)))
		}
		wantLines(t, lines(poll(t, w)...), lines(poll(t, all)...)...)
		if w.Cursor() != all.Cursor() {
			t.Errorf("the cursor is at %v, the twin's at %v", w.Cursor(), all.Cursor())
		}
	}
}

// Names are bounded, and those beyond the bound are watched without a scope.
func TestTermsAreBounded(t *testing.T) {
	s := listed(t, Options{Term: func(keepwatch.Object, string) (string, bool) { return "x", true }}, 1)
	for i := range maxTerms + 5 {
		w := s.Watch(Cursor{Revision: 1}, Filter{Match: func(keepwatch.Object) bool { return true },
			Term: &Term{fmt.Sprint("name", i), "x"}})
		if _, newer, _ := w.TryNext(); newer == nil || (w.value != nil) != (i < maxTerms) {
			t.Fatalf("watcher %d has scope %v", i, w.value)
		}
	}
	if n := len(s.terms.load()); n != maxTerms {
		t.Errorf("%d terms", n)
	}
}

// BenchmarkWatchersByTerm writes an object that one watcher of many selects, and waits until that has it: the CPU of a
// write with 1,000, 4,000 and 16,000 watchers, each of a value of its own, by term and without.
func BenchmarkWatchersByTerm(b *testing.B) {
	for _, by := range []string{"term", "match"} {
		for _, n := range []int{1_000, 4_000, 16_000} {
			b.Run(fmt.Sprintf("by=%s/watchers=%d", by, n), func(b *testing.B) {
				s := listed(b, Options{Term: colorOf}, 1)
				ctx, cancel := context.WithCancel(b.Context())
				var watchers sync.WaitGroup
				var received atomic.Int64
				for i := range n {
					f := ofColor(fmt.Sprint("node-", i))
					if by == "match" {
						f.Term = nil
					}
					w := s.Watch(Cursor{Revision: 1}, f)
					watchers.Go(func() {
						for {
							d, err := w.Next(ctx)
							if err != nil {
								return
							}
							received.Add(int64(len((logEntry{delivery: d}).changes())))
						}
					})
				}
				r := keepwatch.Revision(1)
				began, writes := cpuTime(), 0
				for b.Loop() {
					r++
					writes++
					node := fmt.Sprint("node-", writes*7919%n)
					apply(b, s, r, add(thingAt(fmt.Sprint("o", writes%n), r).with(func(t *thing) {
						t.color, t.uid = node, keepwatch.UID(node)
					})))
					if writes%100 == 0 {
						for received.Load() < int64(writes) {
							time.Sleep(100 * time.Microsecond)
						}
					}
				}
				b.ReportMetric(float64(cpuTime()-began)/float64(writes), "cpu-ns/write")
				cancel()
				watchers.Wait()
			})
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
