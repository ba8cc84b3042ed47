package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/keepwatch/keepwatch"
)

// Revisions calls visit for each accepted key that etcd had at a revision, with the revision of its newest write until
// then. It reads no values. It fails with Expired if etcd has compacted the revision.
func (s *Source) Revisions(ctx context.Context, at keepwatch.Revision, visit func(keepwatch.Key,
	keepwatch.Revision)) error {
	from := s.firstPosition()
	from.revision = at
	if s.pageSize == 0 {
		from.limit = maxPage
	}
	for {
		answer, err := s.rangeKeys(ctx, &from)
		if err != nil {
			return s.failure(ctx, "list", err)
		}
		if failure := s.checkCluster("list", answer.Header, false); failure != nil {
			return failure
		}
		for _, kv := range answer.Kvs {
			if key := s.prefix.key(kv.Key); s.accept(key) {
				visit(key, keepwatch.Revision(kv.ModRevision))
			}
		}
		n := len(answer.Kvs)
		if !answer.More || n == 0 {
			return nil
		}
		from.after = s.prefix.key(answer.Kvs[n-1].Key)
	}
}

// rangeKeys reads a page without values. Servers that send them nevertheless, such as kine, are asked for smaller
// pages.
func (s *Source) rangeKeys(ctx context.Context, at *position) (*pb.RangeResponse, error) {
	for {
		r := s.rangeRequest(*at)
		r.Limit, r.KeysOnly = at.limit, true
		answer, err := s.read(ctx, r)
		if !isTooLarge(err) || at.limit == 1 {
			return answer, err
		}
		at.limit = smallerLimit(at.limit, err)
	}
}

// EndWatches ends the open watches with a failure.
func (s *Source) EndWatches(failure *keepwatch.Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.End(failure)
		w.cancel()
	}
}
