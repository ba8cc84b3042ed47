package access

import (
	"context"
	"errors"
	"sync"
	"time"
)

// reviewsInFlight bounds the reviews at a time that one client can cause: those of tokens that are not known to be
// valid, for the clients of one address, and those of requests that are not known to be allowed, for one user.
// Everybody can make up tokens and names.
const reviewsInFlight = 8

// ErrBusy is why the server is not asked.
var ErrBusy = errors.New("too many reviews of this client are in flight")

// inFlight bounds the reviews in flight of each client. It is safe for concurrent use.
type inFlight struct {
	mu    sync.Mutex
	slots map[string]*slots
}

// slots are those of one client.
type slots struct {
	taken chan struct{}
	users int // in acquire, or until release; inFlight.mu is locked for it
}

func newInFlight() *inFlight { return &inFlight{slots: map[string]*slots{}} }

// acquire waits for a slot of a client, at most until ctx ends or for reviewFor.
func (f *inFlight) acquire(ctx context.Context, client string) (release func(), err error) {
	f.mu.Lock()
	s := f.slots[client]
	if s == nil {
		s = &slots{taken: make(chan struct{}, reviewsInFlight)}
		f.slots[client] = s
	}
	s.users++
	f.mu.Unlock()
	wait := time.NewTimer(reviewFor)
	defer wait.Stop()
	select {
	case s.taken <- struct{}{}:
		return func() { <-s.taken; f.leave(client, s) }, nil
	case <-wait.C:
		err = ErrBusy
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	f.leave(client, s)
	return nil, err
}

// leave forgets a client that has no users.
func (f *inFlight) leave(client string, s *slots) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.users--; s.users == 0 {
		delete(f.slots, client)
	}
}
