package access

import (
	"context"
	"slices"
	"sync"
)

// reviewsOfAll bounds the reviews in flight, of all clients and open watches: after a change of a ClusterRole each open
// watch needs one, and the server has other users.
const reviewsOfAll = 100

// reviewQueue bounds the reviews in flight. Those that wait are admitted round-robin by flow, and first-in first-out
// within one. It is safe for concurrent use.
type reviewQueue struct {
	mu      *sync.Mutex
	most    int
	free    int                        // zero while a review waits
	waiting map[string][]chan struct{} // by flow
	next    []string                   // flows with waiting reviews, each once, in turn
}

func newReviewQueue(most int) reviewQueue {
	return reviewQueue{mu: &sync.Mutex{}, most: most, free: most, waiting: map[string][]chan struct{}{}}
}

// acquire waits until a review may be sent. It returns ErrBusy when ctx ends before.
func (r *reviewQueue) acquire(ctx context.Context, flow string) error {
	r.mu.Lock()
	if r.free > 0 {
		r.free--
		r.mu.Unlock()
		return nil
	}
	admitted := make(chan struct{})
	if len(r.waiting[flow]) == 0 {
		r.next = append(r.next, flow)
	}
	r.waiting[flow] = append(r.waiting[flow], admitted)
	r.mu.Unlock()
	select {
	case <-admitted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting[flow], admitted)
	if i < 0 { // it was admitted meanwhile
		r.admit()
		return ErrBusy
	}
	r.waiting[flow] = slices.Delete(r.waiting[flow], i, i+1)
	if len(r.waiting[flow]) == 0 {
		delete(r.waiting, flow)
		r.next = slices.DeleteFunc(r.next, func(other string) bool { return other == flow })
	}
	return ErrBusy
}

// release ends a review that acquire has admitted.
func (r *reviewQueue) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admit()
}

// admit admits the next review in place of one. r.mu is locked.
func (r *reviewQueue) admit() {
	if len(r.next) == 0 {
		r.free++
		return
	}
	flow := r.next[0]
	r.next = r.next[1:]
	queue := r.waiting[flow]
	close(queue[0])
	if len(queue) == 1 {
		delete(r.waiting, flow)
		return
	}
	r.waiting[flow] = queue[1:]
	r.next = append(r.next, flow)
}

func (r *reviewQueue) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most - r.free
}
