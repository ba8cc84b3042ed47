package queue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func get(t *testing.T, q *Queue[string]) string {
	t.Helper()
	key, _, ok := q.Get()
	if !ok {
		t.Fatal("closed")
	}
	return key
}

func TestUrgentFirst(t *testing.T) {
	q := New[string]()
	q.Add("list-1", Background)
	q.Add("list-2", Background)
	q.Add("change", Urgent)
	if ready, urgent := q.Len(Background), q.Len(Urgent); ready != 2 || urgent != 1 {
		t.Errorf("%d in the background and %d urgent", ready, urgent)
	}
	q.Add("list-2", Urgent)
	if ready, urgent := q.Len(Background), q.Len(Urgent); ready != 1 || urgent != 2 {
		t.Errorf("%d in the background and %d urgent when one has become it", ready, urgent)
	}
	if n := q.Added(); n != 3 {
		t.Errorf("%d added: what came together counts once", n)
	}
	var order []string
	for range 3 {
		order = append(order, get(t, q))
	}
	if want := []string{"list-2", "change", "list-1"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

func TestOneWorkerAKey(t *testing.T) {
	q := New[string]()
	q.Add("a", Urgent)
	key := get(t, q)
	q.Add("a", Urgent)
	q.Add("a", Urgent)
	if q.Len(Urgent) != 0 {
		t.Error("handed out twice at a time")
	}
	q.Done(key)
	q.Done(get(t, q))
	if q.Len(Urgent) != 0 || len(q.entries) != 0 {
		t.Error("what came together was not joined, or is remembered for ever")
	}
}

func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		start := time.Now()
		q.AddAt("late", start.Add(time.Hour))
		q.AddAt("soon", start.Add(time.Minute))
		q.AddAt("late", start.Add(2*time.Hour)) // the first counts
		q.AddAt("now", start.Add(time.Hour))
		q.Add("now", Background)
		for _, want := range []struct {
			key string
			at  time.Duration
		}{{"now", 0}, {"soon", time.Minute}, {"late", time.Hour}} {
			key := get(t, q)
			if key != want.key || time.Since(start) != want.at {
				t.Errorf("%s after %v, want %s after %v", key, time.Since(start), want.key, want.at)
			}
			q.Done(key)
		}
		q.AddAt("taken", time.Now().Add(time.Second))
		key := get(t, q)
		q.AddAt(key, time.Now().Add(time.Second)) // its worker wants it again
		q.Done(key)
		if again := get(t, q); again != key {
			t.Error(again)
		}
		q.Close()
	})
}

func TestUnfinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		q.Add("a", Urgent)
		q.Add("b", Urgent)
		first := get(t, q)
		time.Sleep(3 * time.Second)
		second := get(t, q)
		time.Sleep(time.Second)
		if total, longest := q.Unfinished(); total != 5*time.Second || longest != 4*time.Second {
			t.Errorf("%v, at most %v", total, longest)
		}
		q.Done(first)
		q.Done(second)
		if total, longest := q.Unfinished(); total != 0 || longest != 0 {
			t.Errorf("%v, at most %v when all is done", total, longest)
		}
	})
}

func TestCloseEndsEveryTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[string]()
		ctx, cancel := context.WithCancel(t.Context())
		defer q.CloseWith(ctx)()
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				if _, _, ok := q.Get(); ok {
					t.Error("took something")
				}
			})
		}
		q.AddAt("never", time.Now().Add(time.Hour))
		cancel()
		workers.Wait()
	})
}

// TestNothingIsForgotten lets workers and givers loose on a few keys: each key is
// worked on by one at a time, and after the last thing that was to be done for it.
func TestEveryAddIsProcessed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		const keys = 5
		var busy [keys]atomic.Int32
		var added, seen [keys]atomic.Int64
		var workers, producers sync.WaitGroup
		for range 3 {
			workers.Go(func() {
				for {
					k, _, ok := q.Get()
					if !ok {
						return
					}
					if busy[k].Add(1) != 1 {
						t.Error("two workers for a key")
					}
					seen[k].Store(added[k].Load())
					time.Sleep(time.Millisecond) // of the bubble: lets others run
					busy[k].Add(-1)
					q.Done(k)
				}
			})
		}
		for g := range 3 {
			producers.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(g)))
				for range 500 {
					k := random.IntN(keys)
					added[k].Add(1)
					if random.IntN(2) == 0 {
						q.Add(k, Priority(random.IntN(2)))
					} else {
						q.AddAt(k, time.Now().Add(time.Duration(random.IntN(10))*time.Millisecond))
					}
					time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
				}
			})
		}
		producers.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		for k := range keys {
			if seen[k].Load() != added[k].Load() {
				t.Errorf("key %d: %d given, %d seen", k, added[k].Load(), seen[k].Load())
			}
		}
		q.Close()
		workers.Wait()
	})
}

// A time that was read from an object is one of the wall clock. The wait for it does not grow when that is set back.
func TestWaitOfClockThatIsSetBack(t *testing.T) {
	q := New[string]()
	defer q.Close()
	q.AddAt("a", time.Now().Add(time.Hour).Round(0)) // Round strips the reading of the monotonic clock
	if at := q.waiting.entries[0].at; at == at.Round(0) {
		t.Errorf("the key waits for %v of the wall clock", at)
	}
}
