package readpath

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/util/flowcontrol"
)

const (
	// listCapacity bounds the buffers of large lists and objects while they are written. A slow client
	// occupies its buffers for as long as it reads. Cached encodings do not count.
	listCapacity = 64 << 20
	// watchCapacity bounds the buffers of watches that have many events to send.
	watchCapacity = 64 << 20
	// listBufferSize is the size of the buffers of one list.
	listBufferSize = 2 * chunkSize
	// queueLength and queueTimeout bound the requests that wait to be admitted. Beyond them a request
	// is answered 429 with a Retry-After of one second, or delegated: see Budget.DelegateBusy.
	queueLength  = 1000
	queueTimeout = 10 * time.Second
)

// errBusy is the error of requests that are not admitted.
var errBusy = errors.New("too many large responses are being written, please try again later")

// admission limits how many bytes of response buffers are in use. A user who has reserved some may
// reserve no more than is then left free: half of the capacity is out of the reach of one user, a
// quarter of two, and so on. The same rule applies to places in the queue. Waiting requests are admitted
// round-robin by user, and first-in first-out for one user. A user is a flow: see [Flow]. While a request
// waits, responses that make no progress are ended.
type admission struct {
	mu       sync.Mutex
	capacity int64
	free     int64
	waiting  int
	users    map[string]*share // of users with reservations or waiting requests
	next     []string          // users with waiting requests, each once, in turn

	stalledAfter time.Duration
	responses    map[*admittedResponse]struct{} // that are being written
}

// share has the reservations and the waiting requests of one user.
type share struct {
	reserved int64
	queue    []*waiter
}

// waiter is a request that waits. Invariant: it is in its user's queue until it is admitted.
type waiter struct {
	bytes    int64
	admitted chan struct{}
}

func newAdmission(capacity int64) *admission {
	return &admission{
		capacity: capacity, free: capacity, users: map[string]*share{},
		stalledAfter: stalledAfter, responses: map[*admittedResponse]struct{}{},
	}
}

// acquire reserves n bytes for user, waiting up to queueTimeout. It returns a release function,
// errBusy when the queue is full or the wait is over, or the context's cause. More than the
// capacity counts as all of it.
func (a *admission) acquire(ctx context.Context, user string, n int64) (release func(), err error) {
	n = min(n, a.capacity)
	a.mu.Lock()
	s := a.share(user)
	if len(s.queue) == 0 && fits(s.reserved, n, a.free) {
		a.reserve(s, n)
		a.mu.Unlock()
		return a.releaser(user, n), nil
	}
	if !fits(int64(len(s.queue)), 1, int64(queueLength-a.waiting)) {
		a.removeIdle(user)
		a.mu.Unlock()
		return nil, errBusy
	}
	w := &waiter{n, make(chan struct{})}
	a.enqueue(user, w)
	a.mu.Unlock()

	if err = a.wait(ctx, w); err == nil {
		return a.releaser(user, n), nil
	}
	if !a.cancel(user, w) {
		a.release(user, n) // it was admitted meanwhile
	}
	return nil, err
}

// wait waits until a request is admitted. It ends stalled responses meanwhile.
func (a *admission) wait(ctx context.Context, w *waiter) error {
	// it occupies no seat, if it has one that it may give back, while it waits for others
	flowcontrol.WatchInitialized(ctx)
	timeout, check := time.NewTimer(queueTimeout), time.NewTicker(a.stalledAfter/4)
	defer timeout.Stop()
	defer check.Stop()
	for {
		select {
		case <-w.admitted:
			return nil
		case <-check.C:
			a.endStalled()
		case <-timeout.C:
			return errBusy
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tryAcquire reserves n bytes for user if that needs no waiting, and returns a release function
// or nil.
func (a *admission) tryAcquire(user string, n int64) (release func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.share(user)
	if len(s.queue) > 0 || !fits(s.reserved, n, a.free) {
		a.removeIdle(user)
		return nil
	}
	a.reserve(s, n)
	return a.releaser(user, n)
}

// inUse returns how many bytes are reserved.
func (a *admission) inUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.capacity - a.free
}

// fits reports whether a user who has reserved some of a capacity may reserve n more of what is free.
// Afterwards it has reserved no more than is free then. A user without reservations may reserve all.
func fits(reserved, n, free int64) bool {
	return n <= free && (reserved == 0 || reserved+n <= free-n)
}

func (a *admission) reserve(s *share, n int64) {
	a.free -= n
	s.reserved += n
}

func (a *admission) releaser(user string, n int64) func() {
	return sync.OnceFunc(func() { a.release(user, n) })
}

// release returns n bytes of a user, and admits waiting requests.
func (a *admission) release(user string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += n
	a.users[user].reserved -= n
	a.removeIdle(user)
	a.admitAll()
}

// admitAll admits waiting requests as long as there is room.
func (a *admission) admitAll() {
	for a.admitNext() {
	}
}

// admitNext admits a request of the first user in turn for whom there is room, and moves the user to
// the end.
func (a *admission) admitNext() bool {
	for i, user := range a.next {
		s := a.users[user]
		w := s.queue[0]
		if !fits(s.reserved, w.bytes, a.free) {
			continue
		}
		a.reserve(s, w.bytes)
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
	a.removeIdle(user)
	a.admitAll() // a smaller request may have waited behind it
	return true
}

// share returns a user's share. The caller calls removeIdle unless it adds to the share.
func (a *admission) share(user string) *share {
	s := a.users[user]
	if s == nil {
		s = &share{}
		a.users[user] = s
	}
	return s
}

// removeIdle removes a user's share if it is empty.
func (a *admission) removeIdle(user string) {
	if s := a.users[user]; s.reserved == 0 && len(s.queue) == 0 {
		delete(a.users, user)
	}
}
