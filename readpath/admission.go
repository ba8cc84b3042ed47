package readpath

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// listBuffers bounds the bytes that large lists and objects hold while they are written,
	// beyond what is cached: a slow client holds its buffers for as long as it reads.
	listBuffers = 64 << 20
	// watchBuffers bounds the same of watches that have many events to send.
	watchBuffers = 64 << 20
	// perList is what one list holds.
	perList = 2 * chunk
	// queueLength and queueTimeout bound the requests that wait to be admitted. Beyond them a
	// client is asked to come back in a second.
	queueLength  = 1000
	queueTimeout = 10 * time.Second
)

// errBusy is the error of requests that are not admitted.
var errBusy = errors.New("too many large answers at a time, please try again later")

// admission limits how many bytes of response buffers are in use at a time. A user may hold as
// much as is left free, so that half of the capacity is out of the reach of one user, a quarter
// of two, and so on; the same goes for places in the queue. Waiting requests are admitted round-robin
// by user, and in order for one user.
type admission struct {
	mu       sync.Mutex
	capacity int64
	free     int64
	waiting  int
	users    map[string]*share // of users who hold something or wait
	next     []string          // users who wait, each once, in turn
}

// share is what one user holds and waits for.
type share struct {
	held  int64
	queue []*waiter
}

// waiter is a request that waits. Invariant: it is in its user's queue until it is admitted.
type waiter struct {
	bytes    int64
	admitted chan struct{}
}

func newAdmission(capacity int64) *admission {
	return &admission{capacity: capacity, free: capacity, users: map[string]*share{}}
}

// acquire reserves n bytes for user, waiting up to queueTimeout. It returns a release function,
// errBusy when the queue is full or the wait is over, or the context's cause. More than the
// capacity counts as all of it.
func (a *admission) acquire(ctx context.Context, user string, n int64) (release func(), err error) {
	n = min(n, a.capacity)
	a.mu.Lock()
	s := a.share(user)
	if len(s.queue) == 0 && fits(s.held, n, a.free) {
		a.take(s, n)
		a.mu.Unlock()
		return a.releaser(user, n), nil
	}
	if !fits(int64(len(s.queue)), 1, int64(queueLength-a.waiting)) {
		a.forget(user)
		a.mu.Unlock()
		return nil, errBusy
	}
	w := &waiter{n, make(chan struct{})}
	a.enqueue(user, w)
	a.mu.Unlock()

	timeout := time.NewTimer(queueTimeout)
	defer timeout.Stop()
	select {
	case <-w.admitted:
		return a.releaser(user, n), nil
	case <-timeout.C:
		err = errBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if !a.cancel(user, w) {
		a.release(user, n) // it was admitted at the same moment
	}
	return nil, err
}

// tryAcquire reserves n bytes for user if that needs no waiting, and returns a release function
// or nil.
func (a *admission) tryAcquire(user string, n int64) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.share(user)
	if len(s.queue) > 0 || !fits(s.held, n, a.free) {
		a.forget(user)
		return nil
	}
	a.take(s, n)
	return a.releaser(user, n)
}

// inUse returns how many bytes are held.
func (a *admission) inUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.capacity - a.free
}

// fits reports whether a user who holds some of something may get n more of what is free.
// Afterwards it holds no more than is free then; but a user who holds nothing gets what is there.
func fits(held, n, free int64) bool {
	return n <= free && (held == 0 || held+n <= free-n)
}

func (a *admission) take(s *share, n int64) {
	a.free -= n
	s.held += n
}

func (a *admission) releaser(user string, n int64) func() {
	return sync.OnceFunc(func() { a.release(user, n) })
}

// release gives n bytes of a user back, and admits the next ones.
func (a *admission) release(user string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += n
	a.users[user].held -= n
	a.forget(user)
	a.admitAll()
}

// admitAll admits users in turn as long as there is room.
func (a *admission) admitAll() {
	for a.admitNext() {
	}
}

// admitNext admits the first user in turn for whom there is room, and moves it to the end.
func (a *admission) admitNext() bool {
	for i, user := range a.next {
		s := a.users[user]
		w := s.queue[0]
		if !fits(s.held, w.bytes, a.free) {
			continue
		}
		a.take(s, w.bytes)
		s.queue = s.queue[1:]
		a.waiting--
		a.next = slices.Delete(a.next, i, i+1)
		if len(s.queue) > 0 {
			a.next = append(a.next, user)
		}
		close(w.admitted)
		return true
	}
	return false
}

func (a *admission) enqueue(user string, w *waiter) {
	s := a.share(user)
	if len(s.queue) == 0 {
		a.next = append(a.next, user)
	}
	s.queue = append(s.queue, w)
	a.waiting++
}

// cancel removes a waiter, unless it has been admitted.
func (a *admission) cancel(user string, w *waiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.users[user]
	i := slices.Index(s.queue, w)
	if i < 0 {
		return false
	}
	a.waiting--
	s.queue = slices.Delete(s.queue, i, i+1)
	if len(s.queue) == 0 {
		a.next = slices.DeleteFunc(a.next, func(other string) bool { return other == user })
	}
	a.forget(user)
	a.admitAll() // a smaller one may have stood behind it
	return true
}

// share returns a user's share, which has to be forgotten if nothing is held or waited for.
func (a *admission) share(user string) *share {
	s := a.users[user]
	if s == nil {
		s = &share{}
		a.users[user] = s
	}
	return s
}

// forget drops a share in which nothing is left.
func (a *admission) forget(user string) {
	if s := a.users[user]; s.held == 0 && len(s.queue) == 0 {
		delete(a.users, user)
	}
}
