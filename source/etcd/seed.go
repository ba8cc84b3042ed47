package etcd

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
)

// Seed fills a target that holds nothing with an old state: that of the oldest
// revision that etcd has not compacted, but of at most back revisions before the
// newest one. A reflector that goes on from there brings the target all the history
// since: a store that was seeded answers for the time before its process began.
// The target is behind until then; see [Source.Newest] for when it is not.
//
// It returns the revision that the target holds then. On failure the target holds
// nothing, and the reflector begins with a list as if it had not been seeded.
func (s *Source) Seed(ctx context.Context, target keepwatch.Target, back keepwatch.Revision) (keepwatch.Revision, error) {
	if held := target.Held(); held != 0 {
		return 0, keepwatch.Failed(keepwatch.Broken, "seed %s: the target holds revision %d already", s.prefix, held)
	}
	newest, err := s.Newest(ctx)
	if err != nil {
		return 0, err
	}
	at := keepwatch.Revision(1) // that of an empty etcd
	if newest > back {
		at = newest - back
	}
	for {
		err := s.fill(ctx, target, at)
		if err == nil {
			return at, nil
		}
		if failure := (*keepwatch.Failure)(nil); !errors.As(err, &failure) || failure.Kind != keepwatch.Expired {
			return 0, err
		}
		compacted, failure := s.compacted(ctx, at)
		if failure != nil {
			return 0, failure
		}
		at = compacted
	}
}

// fill replaces what a target holds by the state at a revision.
func (s *Source) fill(ctx context.Context, target keepwatch.Target, revision keepwatch.Revision) error {
	list, err := target.Replace(ctx, keepwatch.Relist{To: revision})
	if err != nil {
		return err
	}
	at := position{revision: revision, limit: s.pageSize}
	for {
		page, failure := s.page(ctx, at)
		if failure != nil {
			list.Discard()
			return failure
		}
		if err := list.Put(ctx, page.Objects); err != nil {
			list.Discard()
			return err
		}
		if page.Continue == "" {
			return list.Commit(ctx, revision)
		}
		at.after = page.Objects[len(page.Objects)-1].Key()
	}
}

// compacted asks for the revision up to which etcd has compacted its history, which
// is after at. etcd tells it to a watch that comes too late, and nobody else.
func (s *Source) compacted(ctx context.Context, at keepwatch.Revision) (keepwatch.Revision, *keepwatch.Failure) {
	ctx, cancel := context.WithTimeout(ctx, s.idleTimeout)
	defer cancel()
	stream, failure := s.dial(ctx, []byte(s.prefix), nil, at)
	if failure != nil {
		return 0, failure
	}
	defer stream.cancel()
	for {
		response, failure := stream.next()
		switch {
		case failure == nil:
		case response.GetCompactRevision() > int64(at):
			return keepwatch.Revision(response.CompactRevision), nil
		default:
			return 0, failure
		}
	}
}
