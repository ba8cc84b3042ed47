package access

import (
	"context"
	"sync"
	"time"
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
	waiting map[string][]*queuedReview // by flow; not empty
	next    []string                   // flows with waiting reviews, each once, in turn
}

// queuedReview is a review that waits. reviewQueue.mu is locked for its fields.
type queuedReview struct {
	admitted   chan struct{} // is closed when it may be sent
	isAdmitted bool
	gone       bool // it was given up, and is skipped: to search for it would take long when thousands are given up
}

func newReviewQueue(most int) reviewQueue {
	return reviewQueue{mu: &sync.Mutex{}, most: most, free: most, waiting: map[string][]*queuedReview{}}
}

// acquire waits until a review may be sent. It returns ErrBusy when ctx ends before.
func (r *reviewQueue) acquire(ctx context.Context, flow string) error {
	r.mu.Lock()
	if r.free > 0 {
		r.free--
		r.mu.Unlock()
		return nil
	}
	w := &queuedReview{admitted: make(chan struct{})}
	if len(r.waiting[flow]) == 0 {
		r.next = append(r.next, flow)
	}
	r.waiting[flow] = append(r.waiting[flow], w)
	r.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w.gone = true
	if w.isAdmitted { // meanwhile
		r.admit()
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
	for len(r.next) > 0 {
		flow := r.next[0]
		r.next = r.next[1:]
		queue := r.waiting[flow]
		for len(queue) > 0 && queue[0].gone {
			queue = queue[1:]
		}
		if len(queue) == 0 {
			delete(r.waiting, flow)
			continue
		}
		first := queue[0]
		first.isAdmitted = true
		close(first.admitted)
		if queue = queue[1:]; len(queue) == 0 {
			delete(r.waiting, flow)
		} else {
			r.waiting[flow] = queue
			r.next = append(r.next, flow)
		}
		return
	}
	r.free++
}

func (r *reviewQueue) inFlight() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most - r.free
}

// queueTime is how long the reviews of one question have waited in the queue. One goroutine uses it.
type queueTime struct{ total time.Duration }

// queueTimeKey is the key of a context's *queueTime.
type queueTimeKey struct{}

// patient returns a context whose reviews wait in the queue until they are admitted, for outageFor at most, and how
// long they have. Without it, they wait for reviewFor at most. What waits there for outageFor has waited for thousands
// of reviews that the server has answered slowly, or not at all.
func patient(ctx context.Context) (context.Context, *queueTime) {
	q := &queueTime{}
	return context.WithValue(ctx, queueTimeKey{}, q), q
}

func queueTimeOf(ctx context.Context) *queueTime {
	q, _ := ctx.Value(queueTimeKey{}).(*queueTime)
	return q
}

// isPatient reports whether a context is patient's.
func isPatient(ctx context.Context) bool { return queueTimeOf(ctx) != nil }

// patience returns how long the reviews of a context may wait in the queue.
func patience(ctx context.Context) time.Duration {
	if q := queueTimeOf(ctx); q != nil {
		return outageFor - q.total
	}
	return reviewFor
}

// addQueueTime counts the part of a question's time before its review, which others may have asked for, left the queue.
func addQueueTime(ctx context.Context, began, left time.Time) {
	if q := queueTimeOf(ctx); q != nil && left.After(began) {
		q.total += left.Sub(began)
	}
}
