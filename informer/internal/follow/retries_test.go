package follow

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
)

// calls are the callbacks of a handler that fails while failing is set.
type calls struct {
	failing atomic.Bool
	begin   time.Time

	mu    sync.Mutex
	times map[string][]time.Duration // of the calls for each object
}

func newCalls() *calls {
	c := &calls{begin: time.Now(), times: map[string][]time.Duration{}}
	c.failing.Store(true)
	return c
}

// objects counts the objects that were delivered.
func (c *calls) objects() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

func (c *calls) Callback(n Notification) func() error {
	return func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		name := n.Key().Name
		c.times[name] = append(c.times[name], time.Since(c.begin))
		if c.failing.Load() {
			return errors.New("not yet")
		}
		return nil
	}
}

// In the first list, in a resync and in a large difference as in a single change, a handler that fails has at most
// maxRetries pending objects. The next object is delivered once one of these was accepted.
func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		h := newHandler(&Follower{}, c, HandlerOptions{Retry: true})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := range maxRetries + 10 {
				key := keepwatch.Key{Name: fmt.Sprint(i)}
				h.deliver(Notification{New: item.New(key, "", keepwatch.Revision(i), nil), Initial: true})
			}
			for len(h.retries.pending) > 0 {
				due, stop := h.retries.due()
				<-due
				stop()
				h.runDue()
			}
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := c.objects(); n != maxRetries {
			t.Errorf("%d objects were delivered, want %d", n, maxRetries)
		}
		c.failing.Store(false)
		<-ended
		if len(c.times) != maxRetries+10 || len(h.retries.order) != 0 {
			t.Errorf("%d objects were delivered in the end, %d are pending", len(c.times), len(h.retries.order))
		}
		first, last := c.times["0"], c.times[fmt.Sprint(maxRetries)]
		want := []time.Duration{0, time.Second, 3 * time.Second}
		if !slices.Equal(first, want) || !slices.Equal(last, []time.Duration{3 * time.Second}) {
			t.Errorf("the first object is delivered at %v, the last at %v; want %v and its end", first, last, want)
		}
	})
}

// A handler that is removed while it waits for room ends.
func TestRemovedWhileRetriesAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls()
		h := newHandler(&Follower{}, c, HandlerOptions{Retry: true})
		go func() {
			for i := range maxRetries + 1 {
				h.deliver(Notification{New: item.New(keepwatch.Key{Name: fmt.Sprint(i)}, "", 1, nil)})
			}
		}()
		synctest.Wait()
		h.stop()
		synctest.Wait() // the bubble's goroutine ends
		if n := c.objects(); n != maxRetries {
			t.Errorf("%d objects were delivered", n)
		}
	})
}
