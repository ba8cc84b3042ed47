package readpath

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/util/flowcontrol"
	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// requests are requests for admission, each in a goroutine of a synctest bubble. Their names are the
// user and a number.
type requests struct {
	admission *admission

	mu       sync.Mutex
	admitted []string          // in order
	refused  map[string]error  // and the reasons
	release  map[string]func() // of the admitted ones
	cancel   map[string]context.CancelFunc
}

func newRequests(room int) *requests {
	return &requests{admission: newAdmission(int64(room)), refused: map[string]error{}, release: map[string]func(){},
		cancel: map[string]context.CancelFunc{}}
}

// acquire starts a request. It returns when the request is admitted, waits, or is refused.
func (c *requests) acquire(user string, number int) {
	name := fmt.Sprint(user, number)
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel[name] = cancel
	go func() {
		release, err := c.admission.acquire(ctx, user, 1)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.refused[name] = err
			return
		}
		c.admitted = append(c.admitted, name)
		c.release[name] = release
	}()
	synctest.Wait()
}

// finish ends an admitted request.
func (c *requests) finish(name string) {
	c.releaser(name)()
	synctest.Wait()
}

func (c *requests) releaser(name string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer delete(c.release, name)
	return c.release[name]
}

// refusal returns the error of a request that was refused, and the number of refused ones.
func (c *requests) refusal(name string) (all int, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.refused), c.refused[name]
}

func (c *requests) abort(name string) {
	c.cancel[name]()
	synctest.Wait()
}

// endAll cancels waiting requests, finishes the others, and fails if the admission is not empty then.
func (c *requests) endAll() error {
	for _, cancel := range c.cancel {
		cancel()
	}
	synctest.Wait()
	for name := range c.release {
		c.finish(name)
	}
	if a := c.admission; a.free != a.capacity || a.inUse() != 0 || a.waiting != 0 || len(a.users) != 0 ||
		len(a.next) != 0 {
		return fmt.Errorf("not empty: %d of %d bytes are free, %d wait, users %v, next %v", a.free, a.capacity, a.waiting,
			a.users, a.next)
	}
	return nil
}

// admittedAre fails the test unless requests were admitted in this order.
func (c *requests) admittedAre(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(c.admitted, want) {
		t.Fatalf("admitted: %v, want %v", c.admitted, want)
	}
}

// One user gets half, a second one half of the rest, and so on: no user can block all others.
func TestUsersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRequests(8)
		for _, user := range []string{"a", "b", "c", "d", "e"} {
			for i := range 10 {
				c.acquire(user, i)
			}
		}
		c.admittedAre(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0", "d0")
		if release := c.admission.tryAcquire("f", 1); release != nil {
			t.Error("another request was admitted")
		}
		c.finish("a0")
		c.finish("d0") // e0 has waited longer than d1
		c.admittedAre(t, "a0", "a1", "a2", "a3", "b0", "b1", "c0", "d0", "e0", "d1")
		if err := c.endAll(); err != nil {
			t.Error(err)
		}
	})
}

// Many requests of one user do not delay one request of another user.
func TestUsersAreAdmittedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRequests(1)
		for i := range 5 {
			c.acquire("a", i)
		}
		c.acquire("b", 0)
		c.acquire("c", 0)
		c.acquire("b", 1)
		for i := range 8 {
			c.finish(c.admitted[i])
		}
		c.admittedAre(t, "a0", "a1", "b0", "c0", "a2", "b1", "a3", "a4")
		if err := c.endAll(); err != nil {
			t.Error(err)
		}
	})
}

// A user who requests and cancels repeatedly gains no priority, and no state remains.
func TestCanceledRequestsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRequests(1)
		c.acquire("a", 0)
		for i := range 100 {
			name := fmt.Sprint("b", i)
			c.acquire("b", i)
			c.abort(name)
			if _, err := c.refusal(name); !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if len(c.admission.next) != 0 || len(c.admission.users) != 1 {
			t.Errorf("%v and %v remain", c.admission.next, c.admission.users)
		}
		for i := range 3 {
			c.acquire("b", 100+i)
		}
		for i := range 3 {
			c.acquire("c", i)
		}
		for i := range 7 {
			c.finish(c.admitted[i])
		}
		c.admittedAre(t, "a0", "b100", "c0", "b101", "c1", "b102", "c2")
		if err := c.endAll(); err != nil {
			t.Error(err)
		}
	})
}

// Requests are refused when they have waited too long, or when the queue is long. One user can't fill
// the queue for others.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRequests(1)
		c.acquire("a", 0)
		const most = queueLength / 2
		for i := range most {
			c.acquire("b", i)
		}
		c.acquire("b", most)
		if all, err := c.refusal(fmt.Sprint("b", most)); !errors.Is(err, errBusy) || all != 1 {
			t.Errorf("behind %d of the same user: %v; %d were refused", most, err, all)
		}
		c.acquire("c", 0)
		if all, err := c.refusal("c0"); err != nil || all != 1 {
			t.Errorf("another user: %v; %d were refused", err, all)
		}
		<-time.After(queueTimeout - time.Nanosecond)
		synctest.Wait()
		if all, _ := c.refusal("c0"); all != 1 {
			t.Errorf("%d were refused too early", all-1)
		}
		<-time.After(time.Nanosecond)
		synctest.Wait()
		if all, err := c.refusal("b0"); all != 2+most || !errors.Is(err, errBusy) {
			t.Errorf("%d were refused, with %v", all-1, err)
		}
		if err := c.endAll(); err != nil {
			t.Error(err)
		}
	})
}

// A request that is admitted and canceled at the same time reserves nothing.
func TestCanceledWhileAdmitted(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			c := newRequests(1)
			c.acquire("a", 0)
			c.acquire("b", 0)
			c.releaser("a0")()
			c.abort("b0")
			if err := c.endAll(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A request for more than the capacity reserves all of it, when all is free. When it is canceled,
// smaller requests behind it are admitted.
func TestLargeRequests(t *testing.T) {
	a := newAdmission(10)
	all := must(a.acquire(t.Context(), "a", 100))(t)
	if a.inUse() != 10 {
		t.Errorf("%d are in use", a.inUse())
	}
	all()
	all() // has no effect
	first := must(a.acquire(t.Context(), "a", 5))(t)
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error)
	go func() {
		_, err := a.acquire(ctx, "b", 10)
		refused <- err
	}()
	await.True(t, "the large request waits", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.waiting == 1 })
	admitted := make(chan func())
	go func() { admitted <- must(a.acquire(t.Context(), "b", 1))(t) }()
	await.True(t, "the small request waits behind it", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.waiting == 2
	})
	cancel()
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	(<-admitted)()
	first()
	if a.inUse() != 0 || len(a.users) != 0 {
		t.Errorf("not empty: %d, %v", a.inUse(), a.users)
	}
}

// model is a simple admission of requests for one byte each.
type model struct {
	free     int
	reserved map[string]int
	admitted []string
	waiting  map[string][]string // by user
	order    []string            // of users with waiting requests
}

func (l *model) fits(user string) bool {
	return l.free > 0 && (l.reserved[user] == 0 || l.reserved[user]+1 <= l.free-1)
}

func (l *model) admit(user, name string) {
	l.free--
	l.reserved[user]++
	l.admitted = append(l.admitted, name)
}

func (l *model) acquire(user, name string) {
	if len(l.waiting[user]) == 0 && l.fits(user) {
		l.admit(user, name)
		return
	}
	if len(l.waiting[user]) == 0 {
		l.order = append(l.order, user)
	}
	l.waiting[user] = append(l.waiting[user], name)
}

func (l *model) finish(user string) {
	l.free++
	l.reserved[user]--
	for {
		i := slices.IndexFunc(l.order, l.fits)
		if i < 0 {
			return
		}
		next := l.order[i]
		l.admit(next, l.waiting[next][0])
		l.order = slices.Delete(l.order, i, i+1)
		if l.waiting[next] = l.waiting[next][1:]; len(l.waiting[next]) > 0 {
			l.order = append(l.order, next)
		}
	}
}

func (l *model) abort(user, name string) {
	l.waiting[user] = slices.DeleteFunc(l.waiting[user], func(n string) bool { return n == name })
	if len(l.waiting[user]) == 0 {
		l.order = slices.DeleteFunc(l.order, func(f string) bool { return f == user })
	}
}

// step is one step of a test: a request begins, or an admitted or waiting one ends.
type step struct {
	Kind  int // 0: a request begins, 1: an admitted one finishes, 2: a waiting one is canceled
	User  string
	Index int
}

func TestAdmissionIsTheModel(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 2).Draw(t, "kind"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "user"),
			rapid.IntRange(0, 9).Draw(t, "index")}
	}), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		room, todo := rapid.IntRange(1, 6).Draw(rt, "room"), steps.Draw(rt, "steps")
		var failure error
		synctest.Test(t, func(*testing.T) { failure = compareSteps(room, todo) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

// compareSteps takes the admission and the model through the same steps, and returns the first
// difference.
func compareSteps(room int, steps []step) error {
	c, l := newRequests(room), &model{free: room, reserved: map[string]int{}, waiting: map[string][]string{}}
	var finished int
	for i, s := range steps {
		switch queue := l.waiting[s.User]; {
		case s.Kind == 0:
			c.acquire(s.User, i)
			l.acquire(s.User, fmt.Sprint(s.User, i))
		case s.Kind == 1 && finished < len(l.admitted):
			c.finish(c.admitted[finished])
			l.finish(c.admitted[finished][:1])
			finished++
		case s.Kind == 2 && len(queue) > 0:
			name := queue[s.Index%len(queue)]
			c.abort(name)
			l.abort(s.User, name)
		}
		if !slices.Equal(slices.Sorted(slices.Values(c.admitted)), slices.Sorted(slices.Values(l.admitted))) {
			return errors.Join(fmt.Errorf("after step %d: admitted: %v, want %v", i, c.admitted, l.admitted), c.endAll())
		}
	}
	return c.endAll()
}

// TestPanicReleasesBuffers checks that a request whose preparation panics, as an encoder may, reserves nothing
// afterwards.
func TestPanicReleasesBuffers(t *testing.T) {
	s := &Reader{budget: NewBudget(1 << 20)}
	q := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		s.admit(q, listBufferSize, func() (http.HandlerFunc, reason) { panic("an encoder") })
	}()
	if n := s.budget.lists.inUse(); n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
}

// A request that waits for room gives back what it occupies of the server's priority level.
func TestSeatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAdmission(1)
		release, err := a.acquire(t.Context(), "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		seat := flowcontrol.NewInitializationSignal()
		left := make(chan struct{})
		go func() { seat.Wait(); close(left) }()
		waited := make(chan error)
		go func() {
			releaseSecond, err := a.acquire(flowcontrol.WithInitializationSignal(t.Context(), seat), "b", 1)
			if err == nil {
				releaseSecond()
			}
			waited <- err
		}()
		<-left
		release()
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}
