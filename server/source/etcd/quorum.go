package etcd

import (
	"context"
	"errors"

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
	newest, err := s.newest.Do(ctx, s.readNewest)
	if errors.Is(err, context.DeadlineExceeded) { // of a caller that waited
		err = status.FromContextError(err).Err()
	}
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
