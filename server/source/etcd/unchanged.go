package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/keepwatch/keepwatch"
)

// Unchanged reports whether the resource's keys have changed after from up to to: a key that was
// put has a newer revision, and if there is none, a deletion makes their number smaller. etcd
// answers progress requests also for a prefix without changes, so that only a broken watch is
// silent. Keys that Accept refuses count, too: their changes may cause a needless list.
func (s *Source) Unchanged(ctx context.Context, from, to keepwatch.Revision) error {
	put, err := s.read(ctx, &pb.RangeRequest{
		Key: s.prefix.first(), RangeEnd: s.prefix.end(), Revision: int64(to), MinModRevision: int64(from) + 1, KeysOnly: true,
		Limit: 1,
	})
	if err != nil {
		return s.failure(ctx, "read", err)
	}
	changed := len(put.Kvs) > 0
	if !changed {
		before, err := s.countAt(ctx, from)
		if err != nil {
			return s.failure(ctx, "read", err)
		}
		after, err := s.countAt(ctx, to)
		if err != nil {
			return s.failure(ctx, "read", err)
		}
		changed = before != after
	}
	if changed {
		return keepwatch.Failed(keepwatch.Silent,
			"watch %s: the watch is silent, although keys have changed between revisions %d and %d", s.prefix, from, to)
	}
	return nil
}

func (s *Source) countAt(ctx context.Context, at keepwatch.Revision) (int64, error) {
	answer, err := s.read(ctx, &pb.RangeRequest{Key: s.prefix.first(), RangeEnd: s.prefix.end(), Revision: int64(at),
		CountOnly: true})
	return answer.GetCount(), err
}
