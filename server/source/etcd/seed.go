package etcd

import (
	"context"
	"errors"

	"github.com/keepwatch/keepwatch"
)

// Seed loads an old state into an empty target, and then applies the history since, up to
// the newest revision of etcd when Seed was called. A seeded store can answer watches from
// revisions before its process started. The state is that of the oldest revision that etcd
// has not compacted, but at most back revisions before the newest one.
//
// Seed returns the revision of that state. If it fails, the target is empty, and a
// reflector begins with a list as usual. An error while the history is read is not a
// failure of Seed: a reflector resumes at the target's revision, and meets the same error.
func (s *Source) Seed(ctx context.Context, target keepwatch.Target,
	back keepwatch.Revision) (keepwatch.Revision, error) {
	if current := target.Revision(); current != 0 {
		return 0, keepwatch.Failed(keepwatch.InvariantViolation, "seed %s: the target has revision %d already", s.prefix,
			current)
	}
	s.recordListStart()
	newest, err := s.Newest(ctx)
	if err != nil {
		return 0, err
	}
	at := keepwatch.Revision(1) // the revision of an empty etcd
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

// seed is one attempt at Seed. The history is read ahead while the state is loaded.
func (s *Source) seed(ctx context.Context, target keepwatch.Target, from, to keepwatch.Revision) error {
	historyCtx, cancel := context.WithCancel(ctx)
	history := s.openHistory(historyCtx, from, to)
	defer history.close()
	defer cancel() // openWatches may still run
	if err := s.fill(ctx, target, from); err != nil {
		return err
	}
	history.replay(ctx, target)
	return nil
}

// fill replaces a target's content by the state at a revision.
func (s *Source) fill(ctx context.Context, target keepwatch.Target, revision keepwatch.Revision) error {
	list, err := target.Replace(ctx, keepwatch.Relist{To: revision})
	if err != nil {
		return err
	}
	if err := s.putState(ctx, list, revision); err != nil {
		list.Discard()
		return err
	}
	return list.Commit(ctx, revision)
}

// putState puts the state at a revision into a list. The next page is read while the list
// processes one.
func (s *Source) putState(ctx context.Context, list keepwatch.Replacement, revision keepwatch.Revision) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan keepwatch.Page)
	var failure *keepwatch.Failure
	go func() {
		defer close(pages)
		failure = s.readState(ctx, revision, pages)
	}()
	for page := range pages { // until the goroutine has ended
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

// readState sends the pages of the state at a revision: as a stream, and what that lacks page by page.
func (s *Source) readState(ctx context.Context, revision keepwatch.Revision,
	into chan<- keepwatch.Page) *keepwatch.Failure {
	at := s.firstPosition()
	at.revision = revision
	if s.streams {
		if complete, failure := s.streamState(ctx, &at, into); complete || failure != nil {
			return failure
		}
	}
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

// compactRevision returns the revision up to which etcd has compacted its history; it is
// above at. etcd reports it only to a watch that starts below it.
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
