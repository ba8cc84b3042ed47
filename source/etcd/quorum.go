package etcd

import (
	"context"
	"sync"

	"google.golang.org/grpc/status"

	"github.com/keepwatch/keepwatch"
)

// Newest asks for the newest committed revision, by a quorum read that began after
// the call. All who wait when it begins share it, so that any number of callers
// costs one read at a time.
//
// It also makes an open watch of this source reach that revision without delay,
// even where nothing of this resource has changed: it asks etcd for progress until
// it is there. To read consistently from a target, call Newest and wait until the
// target holds the revision.
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

// want makes the open watches reach a revision.
func (s *Source) requestProgress(r keepwatch.Revision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.requestProgress(r)
	}
}

// quorum shares reads among those who wait for one. A read runs in the call of one
// of them; when that call is cancelled, another one reads again.
type quorumReads struct {
	running chan struct{} // held while a read runs
	mu      sync.Mutex
	next    *quorumRead // has not begun; nil when nobody waits for it
}

// reading is a read that has not begun, runs, or is done.
type quorumRead struct {
	done     chan struct{}
	revision keepwatch.Revision // once it is done
	err      error
}

func newQuorumReads() quorumReads { return quorumReads{running: make(chan struct{}, 1)} }

// ask waits for a read that begins after this call.
func (q *quorumReads) read(ctx context.Context, do func(context.Context) (keepwatch.Revision, error)) (keepwatch.Revision, error) {
	r := q.join()
	select {
	case <-r.done:
	case <-ctx.Done():
		return 0, status.FromContextError(ctx.Err()).Err()
	case q.running <- struct{}{}:
		defer func() { <-q.running }()
		select {
		case <-r.done: // by somebody else, in the turn before
			return r.revision, r.err
		default:
		}
		q.start(r)
		revision, err := do(ctx)
		if ctx.Err() != nil {
			return revision, err // r is for another one who waits
		}
		r.revision, r.err = revision, err
		close(r.done)
	}
	return r.revision, r.err
}

// join returns the read that begins next.
func (q *quorumReads) join() *quorumRead {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == nil {
		q.next = &quorumRead{done: make(chan struct{})}
	}
	return q.next
}

// begin lets nobody join r any more.
func (q *quorumReads) start(r *quorumRead) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == r {
		q.next = nil
	}
}
