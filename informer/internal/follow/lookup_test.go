package follow

import (
	"errors"
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

func TestLookup(t *testing.T) {
	var l lookup
	if _, ok := l.get("a"); ok {
		t.Error("an empty lookup has a value")
	}
	cluster := item.New(keepwatch.Key{Name: "c"}, "u", 1, "cluster")
	l.fill(&store.Snapshot{}, func() {})
	l.apply([]keepwatch.Change{
		{Type: keepwatch.Added, Object: thing(1, 1)},
		{Type: keepwatch.Added, Object: thing(2, 2)},
		{Type: keepwatch.Added, Object: thing(3, 3).Rejected(errors.New("no"))},
		{Type: keepwatch.Added, Object: cluster},
		{Type: keepwatch.Deleted, Object: thing(2, 4)},
	}, func() {})
	for key, want := range map[keepwatch.Key]any{
		{Namespace: "ns", Name: "1"}: 1, {Namespace: "ns", Name: "2"}: nil, {Namespace: "ns", Name: "3"}: nil,
		{Name: "c"}: "cluster", {Name: "1"}: nil,
	} {
		if got, ok := l.get(key.String()); got != want || ok != (want != nil) {
			t.Errorf("%v: %v, %v", key, got, ok)
		}
		if got, ok := l.find(key); got != want || ok != (want != nil) {
			t.Errorf("%v by its parts: %v, %v", key, got, ok)
		}
	}
	if n := testing.AllocsPerRun(100, func() { l.find(keepwatch.Key{Namespace: "ns", Name: "1"}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A read during writes finds the objects that do not change.
func TestLookupWhileItIsWritten(t *testing.T) {
	var l lookup
	put := func(n int, revision keepwatch.Revision) {
		l.apply([]keepwatch.Change{{Type: keepwatch.Added, Object: thing(n, revision)}}, func() {})
	}
	l.fill(&store.Snapshot{}, func() {})
	for n := range 100 {
		put(n, 1)
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
				if value, ok := l.find(keepwatch.Key{Namespace: "ns", Name: fmt.Sprint(n)}); !ok || value != n {
					t.Errorf("%d: %v", n, value)
					return
				}
			}
		})
	}
	for revision := range keepwatch.Revision(5_000) {
		put(rand.IntN(100), revision)
		put(100+rand.IntN(1000), revision)
		l.apply([]keepwatch.Change{{Type: keepwatch.Deleted, Object: thing(100+rand.IntN(1000), 0)}}, func() {})
	}
	close(end)
	wg.Wait()
}
