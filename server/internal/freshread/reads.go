// Package freshread shares reads of the newest state among callers, none of which receives a read that
// began before its call.
package freshread

import (
	"context"
	"sync"

	"github.com/keepwatch/keepwatch"
)

// Reads shares each read among the waiting callers. One of them performs it; if its call is canceled,
// another caller reads again. It is safe for concurrent use.
type Reads struct {
	running chan struct{} // full while a read runs
	mu      sync.Mutex
	next    *read // has not begun; nil when no caller waits
}

// read is a read that has not begun, runs, or is done.
type read struct {
	done     chan struct{}
	revision keepwatch.Revision // once it is done
	err      error
}

// New returns Reads of which none runs.
func New() *Reads { return &Reads{running: make(chan struct{}, 1)} }

// Do returns the result of a read that begins after this call. If ctx ends before that, it returns ctx's
// error.
func (q *Reads) Do(ctx context.Context,
	newest func(context.Context) (keepwatch.Revision, error)) (keepwatch.Revision, error) {
	r := q.join()
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	case q.running <- struct{}{}:
		defer func() { <-q.running }()
		select {
		case <-r.done: // by another caller, meanwhile
			return r.revision, r.err
		default:
		}
		q.start(r)
		revision, err := newest(ctx)
		if ctx.Err() != nil {
			return revision, err // another waiting caller performs r
		}
		r.revision, r.err = revision, err
		close(r.done)
	}
	return r.revision, r.err
}

// join returns the next read to begin.
func (q *Reads) join() *read {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == nil {
		q.next = &read{done: make(chan struct{})}
	}
	return q.next
}

// start ends the joining of r.
func (q *Reads) start(r *read) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == r {
		q.next = nil
	}
}
