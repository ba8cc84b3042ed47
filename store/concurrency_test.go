package store

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch"
)

// herd writes a history of its own: n batches about some hundred objects in ten
// namespaces, now and then a list, and a bookmark at its end.
func herd(t *testing.T, s *Store, n int) {
	t.Helper()
	revision, twin := s.Revision(), stateOf(s.Snapshot())
	for i := range n {
		revision++
		o := &thing{
			key: key(fmt.Sprint("ns", i%10), fmt.Sprint("name", i*7%300)), uid: keepwatch.UID(fmt.Sprint(i)),
			revision: revision, color: []string{"red", "blue"}[i/3%2],
		}
		current, known := twin[o.key]
		switch {
		case i%500 == 499:
			delete(twin, key("ns9", "name9"))
			relist(t, s, keepwatch.GapExpired, revision, twin.sorted()...)
			continue
		case known && i%5 == 0:
			apply(t, s, revision, del(current.(*thing), revision))
			delete(twin, o.key)
			continue
		case known:
			o.uid = current.UID()
			apply(t, s, revision, modify(o))
		default:
			apply(t, s, revision, add(o))
		}
		twin[o.key] = o
	}
	apply(t, s, revision+1)
}

// One writer, hundreds of watchers of different speeds, and readers, which check that
// every snapshot is one whole state.
func TestManyReadersOneWriter(t *testing.T) {
	// A window so small that the slow ones fall behind it.
	s := listed(t, Options{WindowBytes: 200 * (logEntryBytes + changeBytes), Size: func(keepwatch.Object) int { return 1 },
		Term: colorOf}, 1)
	const batches = 3000
	end := keepwatch.Revision(1 + batches + 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watchers, readers sync.WaitGroup
	for i := range 300 {
		f := []Filter{{}, {Namespace: fmt.Sprint("ns", i%10)}, {Match: red}, {Namespace: "ns3", Match: red},
			{Match: red, Term: &Term{"color", "red"}}}[i%5]
		watchers.Go(func() {
			w, fold := s.Watch(Cursor{}, f), state{}
			for w.Cursor().Revision < end {
				d, err := w.Next(ctx)
				if err != nil {
					t.Errorf("watcher %d at %v: %v", i, w.Cursor(), err)
					return
				}
				for _, c := range (logEntry{delivery: d}).changes() {
					if c.Type == keepwatch.Deleted {
						delete(fold, c.Object.Key())
					} else {
						fold[c.Object.Key()] = c.Object
					}
				}
				for range i % 7 {
					runtime.Gosched() // each has its own speed
				}
			}
			if want := stateOf(s.Snapshot()).through(f); !fold.equal(want) {
				t.Errorf("watcher %d has\n%vwant\n%v", i, fold, want)
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for last := keepwatch.Revision(0); last < end; runtime.Gosched() {
				now := s.Snapshot()
				if now.Revision() < last || now.Digest() != uint64(recomputed(now)) {
					t.Errorf("a snapshot of %d after %d is not whole", now.Revision(), last)
					return
				}
				last = now.Revision()
				if past, err := s.At(last - min(last, 20)); err == nil && past.Digest() != uint64(recomputed(past)) {
					t.Errorf("the state at %d is not whole", past.Revision())
				}
			}
		})
	}
	herd(t, s, batches)
	watchers.Wait()
	readers.Wait()
}

// Idle watchers need no goroutine: they share one channel.
func TestIdleWatchersAreCheap(t *testing.T) {
	s := listed(t, Options{}, 1)
	const n = 10_000
	goroutines := runtime.NumGoroutine()
	before := heapInUse()
	watchers := make([]*Watcher, n)
	var news <-chan struct{}
	for i := range watchers {
		watchers[i] = s.Watch(s.Snapshot().Cursor(), Filter{Namespace: "ns"})
		d, newer, err := watchers[i].TryNext()
		if d != nil || err != nil || news != nil && newer != news {
			t.Fatalf("an idle watcher returns %v, %v", d, err)
		}
		news = newer
	}
	each := (heapInUse() - before) / n
	t.Logf("%d bytes for each idle watcher", each)
	if each > 1<<10 {
		t.Errorf("%d bytes for each idle watcher, 1024 are allowed", each)
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("%d goroutines, %d before", now, goroutines)
	}
	apply(t, s, 2, add(thingAt("a", 2)))
	<-news
	for _, w := range watchers {
		wantLines(t, lines(poll(t, w)...), "batch 1-2; ADDED@2 ns/a a-1@2")
	}
	runtime.KeepAlive(watchers)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A watcher that never reads must not retain the history.
func TestAStalledWatcherHoldsNothing(t *testing.T) {
	o := Options{WindowBytes: 10 << 10, TombstoneBytes: 10 << 10}
	s := listed(t, o, 1)
	stalled := s.Watch(s.Snapshot().Cursor(), Filter{})
	if _, _, err := stalled.TryNext(); err != nil {
		t.Fatal(err)
	}
	before := heapInUse()
	for r := keepwatch.Revision(2); r < 2000; r += 2 {
		big := thingAt("big", r).painted(string(make([]byte, 10<<10)))
		apply(t, s, r+1, add(big), del(big, r+1))
	}
	if grown := heapInUse() - before; grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	runtime.KeepAlive(stalled)
}
