package informer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

func thing(n int, revision keepwatch.Revision) *item.Item {
	return item.New(keepwatch.Key{Namespace: "ns", Name: fmt.Sprint(n)}, "u", revision, n)
}

// The lookup is a map, whatever is put and removed.
func TestLookupIsAMap(t *testing.T) {
	var l lookup
	if _, ok := l.get(keepwatch.Key{Name: "a"}); ok {
		t.Error("something is in an empty one")
	}
	l.fill(&store.Snapshot{})
	twin := map[keepwatch.Key]*item.Item{}
	for revision := range keepwatch.Revision(30_000) {
		o := thing(rand.IntN(500)*rand.IntN(4), revision)
		if rand.IntN(3) == 0 {
			l.follow([]keepwatch.Change{{Type: keepwatch.Deleted, Object: o}})
			delete(twin, o.Key())
		} else {
			l.follow([]keepwatch.Change{{Type: keepwatch.Added, Object: o}})
			twin[o.Key()] = o
		}
	}
	if l.live != len(twin) || l.used < l.live {
		t.Errorf("%d live, %d used, %d are there", l.live, l.used, len(twin))
	}
	if size := len(l.table.Load().of); size > 8192 {
		t.Errorf("%d slots for %d objects", size, l.live)
	}
	for n := range 2000 {
		key := thing(n, 0).Key()
		if got, _ := l.get(key); got != twin[key] {
			t.Errorf("%v: %v, want %v", key, got, twin[key])
		}
	}
}

// Who reads while it is written finds what is there all the time.
func TestLookupWhileItIsWritten(t *testing.T) {
	var l lookup
	l.fill(&store.Snapshot{})
	for n := range 100 {
		l.put(thing(n, 1))
	}
	var wg sync.WaitGroup
	end := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for n := 0; ; n = (n + 1) % 100 {
				select {
				case <-end:
					return
				default:
				}
				if o, ok := l.get(thing(n, 0).Key()); !ok || o.Value() != n {
					t.Errorf("%d: %v", n, o)
					return
				}
			}
		})
	}
	for revision := range keepwatch.Revision(5_000) {
		l.put(thing(rand.IntN(100), revision))
		l.put(thing(100+rand.IntN(1000), revision))
		l.remove(thing(100+rand.IntN(1000), 0).Key())
	}
	close(end)
	wg.Wait()
}
