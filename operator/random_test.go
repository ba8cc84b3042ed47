package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator/internal/write"
)

func annotationOf(state map[string]any, name string) any {
	about, _ := state["metadata"].(map[string]any)
	annotations, _ := about["annotations"].(map[string]any)
	return annotations[defaultPrefix+"/"+name]
}

// killableServer is a server that accepts no patches of an operator that was killed.
type killableServer struct {
	*fakeServer
	killed atomic.Bool
}

func (m *killableServer) patch(ctx context.Context, seen map[string]any,
	r write.Request) (*unstructured.Unstructured, error) {
	if m.killed.Load() {
		return nil, errors.New("killed")
	}
	return m.fakeServer.patch(ctx, seen, r)
}

// handlerCalls records the calls of handlers over all processes.
type handlerCalls struct {
	mu sync.Mutex
	// last is the size at the last call of each handler, by object; deletions counts the
	// calls of delete handlers.
	last      map[string]int
	deletions map[string]int
	calls     int
}

// TestRandomFaultsAndKills runs operators on a server with random faults: late deliveries
// (Sieve's stale states), skipped ones (unobserved states), failed requests, lost answers,
// and kills (intermediate states). When the faults end, handlers have seen the final
// states, deleted objects are gone and their delete handlers were called, and no progress
// remains.
//
// With kills, no change is reverted: a handler may have been called for it without a
// written record.
func TestRandomFaultsAndKills(t *testing.T) {
	first := rand.Uint64()
	for n := range uint64(10) {
		seed := first + n
		if ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandomly(t, rand.New(rand.NewPCG(seed, 0))) })
		}); !ok {
			return
		}
	}
}

func runRandomly(t *testing.T, random *rand.Rand) {
	w := newFakeServer()
	c := &handlerCalls{last: map[string]int{}, deletions: map[string]int{}}
	var mu sync.Mutex // of random, which is used by several
	intn := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	quiet := atomic.Bool{}
	w.lag = func() time.Duration {
		if quiet.Load() {
			return 0
		}
		return time.Duration(intn(8)) * time.Second
	}
	w.skip = func() bool { return intn(2) == 0 }
	w.fault = func(write.Request, string) (error, bool) {
		if quiet.Load() {
			return nil, false
		}
		switch intn(12) {
		case 0:
			return errors.New("connection reset"), true
		case 1:
			return errors.New("connection refused"), false
		case 2:
			return answer(http.StatusConflict, "Conflict"), false
		case 3:
			return answer(http.StatusServiceUnavailable, "ServiceUnavailable"), false
		}
		return nil, false
	}
	begin := func() (*runningOperator, *killableServer) {
		m := &killableServer{fakeServer: w}
		return startWith(t, w, failingOperator(c, intn, &quiet), m), m
	}
	names := []string{"a", "b", "c"}
	kills, sizes := intn(2) == 0, int64(0)
	size := func() int64 {
		if sizes++; kills {
			return sizes
		}
		return int64(intn(3))
	}
	r, m := begin()
	for range 60 {
		name := names[intn(len(names))]
		switch intn(10) {
		case 0, 1:
			if w.at(name) == nil {
				w.create(name, spec(size()))
			}
		case 2, 3, 4:
			w.change(name, "size", size())
		case 5:
			w.delete(name)
		case 6:
			if !kills {
				continue
			}
			m.killed.Store(true)
			r.cancelHandlers(ErrStopped)
			_ = r.end()
			r, m = begin()
		default:
			time.Sleep(time.Duration(intn(20_000)) * time.Millisecond)
		}
	}
	quiet.Store(true)
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	c.check(t, w)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// failingOperator returns an operator whose handlers fail at random until quiet is set.
func failingOperator(c *handlerCalls, intn func(int) int, quiet *atomic.Bool) *Operator {
	handler := func(id string) Func[*Thing] {
		return func(ctx context.Context, r *thing) error {
			time.Sleep(time.Duration(intn(3)) * time.Second)
			if !quiet.Load() && intn(3) == 0 {
				return RetryAfter(errors.New("no"), time.Duration(intn(30))*time.Second)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls++
			if r.Cause == Deleted {
				c.deletions[string(r.Object.UID)]++
			} else {
				c.last[string(r.Object.UID)+" "+id] = r.Object.Spec.Size
				r.Patch.Status(id, r.Object.Spec.Size)
			}
			return nil
		}
	}
	op := New("widgets.example.com", ShutdownGrace(0), Workers(2))
	OnCreate(op, handler("x"), ID("x"))
	OnUpdate(op, handler("x"), ID("x"))
	OnCreate(op, handler("y"), ID("y"))
	OnUpdate(op, handler("y"), ID("y"))
	OnDelete(op, handler("end"), ID("end"))
	return op
}

func (c *handlerCalls) check(t *testing.T, w *fakeServer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, o := range w.objects {
		if text(o, "deletionTimestamp") != "" {
			t.Errorf("%s is being deleted for ever: %v", name, o)
			continue
		}
		size := int(o["spec"].(map[string]any)["size"].(int64))
		for _, id := range []string{"x", "y"} {
			if last, ok := c.last[text(o, "uid")+" "+id]; !ok || last != size {
				t.Errorf("%s has seen size %d of %s last (%v), it is %d", id, last, name, ok, size)
			}
			if status, _ := o["status"].(map[string]any); status[id] != int64(size) {
				t.Errorf("the status of %s is %v, want %d", name, status, size)
			}
		}
		notes := maps.Clone(o["metadata"].(map[string]any)["annotations"].(map[string]any))
		delete(notes, defaultPrefix+"/last-handled-configuration")
		if len(notes) > 0 {
			t.Errorf("left on %s: %v", name, notes)
		}
	}
	for seen := range c.last {
		uid, _, _ := strings.Cut(seen, " ")
		if o := w.objects[strings.SplitN(uid, "-", 2)[0]]; (o == nil || text(o, "uid") != uid) && c.deletions[uid] == 0 {
			t.Errorf("%s is gone, and its delete handler was not called", uid)
		}
	}
}
