package etcd

import (
	"context"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
)

// Newest returns the newest committed revision, from a quorum read that began after the
// call. Callers that wait when a read begins share it, so that any number of callers
// causes one read at a time.
//
// Newest also makes the open watches of this source reach that revision without delay,
// even if no object of this resource has changed: they request progress from etcd until
// they have reached it. To read consistently from a target, call Newest, and wait until
// the target has the revision.
func (s *Source) Newest(ctx context.Context) (keepwatch.Revision, error) {
	newest, err := s.newest.read(ctx, s.readNewest)
	if err != nil {
		return 0, s.failure(ctx, "read", err)
	}
	return newest, nil
}

func (s *Source) readNewest(ctx context.Context) (keepwatch.Revision, error) {
	h, err := s.readHeader(ctx, 0)
	if err != nil {
		return 0, err
	}
	if failure := s.checkCluster("read", h, false); failure != nil {
		return 0, failure
	}
	newest := keepwatch.Revision(h.Revision)
	s.requestProgress(newest)
	return newest, nil
}

// requestProgress makes the open watches reach a revision.
func (s *Source) requestProgress(r keepwatch.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.requestProgress(r)
	}
}

// quorumReads shares each read among the waiting callers. One of them performs it; if its
// call is canceled, another caller reads again.
type quorumReads struct {
	running chan struct{} // full while a read runs
	mu      sync.Mutex
	next    *quorumRead // has not begun; nil when no caller waits
}

// quorumRead is a read that has not begun, runs, or is done.
type quorumRead struct {
	done     chan struct{}
	revision keepwatch.Revision // once it is done
	err      error
}

func newQuorumReads() quorumReads { return quorumReads{running: make(chan struct{}, 1)} }

// read returns the result of a read that begins after this call.
func (q *quorumReads) read(ctx context.Context, do func(context.Context) (keepwatch.Revision, error)) (keepwatch.Revision, error) {
	r := q.join()
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, status.FromContextError(ctx.Err()).Err()
	case q.running <- struct{}{}:
		defer func() { <-q.running }()
		select {
		case <-r.done: // by another caller, meanwhile
			return r.revision, r.err
		default:
		}
		q.start(r)
		revision, err := do(ctx)
		if ctx.Err() != nil {
			return revision, err // another waiting caller performs r
		}
		r.revision, r.err = revision, err
		close(r.done)
	}
	return r.revision, r.err
}

// join returns the next read to begin.
func (q *quorumReads) join() *quorumRead {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == nil {
		q.next = &quorumRead{done: make(chan struct{})}
	}
	return q.next
}

// start ends the joining of r.
func (q *quorumReads) start(r *quorumRead) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == r {
		q.next = nil
	}
}
