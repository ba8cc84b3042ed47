package etcd

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
)

// Seed fills a target that holds nothing with an old state, and then with the history
// since, up to what was etcd's newest revision when it began: a store that was seeded
// answers for the time before its process began. The state is that of the oldest
// revision that etcd has not compacted, but of at most back revisions before the
// newest one.
//
// It returns the revision of that state. If it fails the target holds nothing, and a
// reflector begins with a list as if it had not been seeded. If only the history stops
// short, by whatever it is, that is no failure: a reflector goes on from there, and
// meets what it was.
func (s *Source) Seed(ctx context.Context, target keepwatch.Target, back keepwatch.Revision) (keepwatch.Revision, error) {
	if current := target.Revision(); current != 0 {
		return 0, keepwatch.Failed(keepwatch.InvariantViolation, "seed %s: the target holds revision %d already", s.prefix, current)
	}
	s.recordListStart()
	newest, err := s.Newest(ctx)
	if err != nil {
		return 0, err
	}
	at := keepwatch.Revision(1) // that of an empty etcd
	if newest > back {
		at = newest - back
	}
	for {
		err := s.seed(ctx, target, at, newest)
		if err == nil {
			return at, nil
		}
		if failure := (*keepwatch.Failure)(nil); !errors.As(err, &failure) || failure.Kind != keepwatch.Expired {
			return 0, err
		}
		compacted, failure := s.compactRevision(ctx, at)
		if failure != nil {
			return 0, failure
		}
		at = compacted
	}
}

// seed is one attempt at Seed. The history is read ahead of while the state is filled in.
func (s *Source) seed(ctx context.Context, target keepwatch.Target, from, to keepwatch.Revision) error {
	historyCtx, cancel := context.WithCancel(ctx)
	history := s.openHistory(historyCtx, from, to)
	defer history.close()
	defer cancel() // it may still be opening watches
	if err := s.fill(ctx, target, from); err != nil {
		return err
	}
	history.replay(ctx, target)
	return nil
}

// fill replaces what a target holds by the state at a revision.
func (s *Source) fill(ctx context.Context, target keepwatch.Target, revision keepwatch.Revision) error {
	list, err := target.Replace(ctx, keepwatch.Relist{To: revision})
	if err != nil {
		return err
	}
	if err := s.putPages(ctx, list, revision); err != nil {
		list.Discard()
		return err
	}
	return list.Commit(ctx, revision)
}

// pour puts the state at a revision into a list: while it takes a page the next one is
// read.
func (s *Source) putPages(ctx context.Context, list keepwatch.Replacement, revision keepwatch.Revision) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan keepwatch.Page)
	var failure *keepwatch.Failure
	go func() {
		defer close(pages)
		failure = s.pages(ctx, revision, pages)
	}()
	for page := range pages { // to its end, with which the goroutine has ended
		if err == nil {
			if err = list.Put(ctx, page.Objects); err != nil {
				cancel()
			}
		}
	}
	if err == nil && failure != nil {
		return failure
	}
	return err
}

// pages reads the state at a revision.
func (s *Source) pages(ctx context.Context, revision keepwatch.Revision, into chan<- keepwatch.Page) *keepwatch.Failure {
	at := s.firstPosition()
	at.revision = revision
	for {
		page, failure := s.page(ctx, &at)
		if failure != nil {
			return failure
		}
		into <- page
		if page.Continue == "" {
			return nil
		}
	}
}

// compacted asks for the revision up to which etcd has compacted its history, which
// is after at. etcd tells it to a watch that comes too late, and nobody else.
func (s *Source) compactRevision(ctx context.Context, at keepwatch.Revision) (keepwatch.Revision, *keepwatch.Failure) {
	ctx, cancel := context.WithTimeout(ctx, s.idleTimeout)
	defer cancel()
	stream, failure := s.openStream(ctx, []byte(s.prefix), nil, at)
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
