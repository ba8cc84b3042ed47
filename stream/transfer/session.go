package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// errRewound ends a session after a stream has noticed a rewind: the other streams of its line
// are invalidated at the next open.
var errRewound = errors.New("the source was restored from a backup")

// errChanged ends a session whose resources have changed.
var errChanged = errors.New("the resources have changed")

// session is one time between Open and Close of the sink.
type session struct {
	*Transfer
	resources []Resource
	first     bool // no session has opened the sink before
	opened    bool
	closed    error        // of the sink's Close
	failures  []error      // of each resource; an element belongs to its goroutine until the session has ended
	leaving   atomic.Int64 // resources that are gone and not ended yet
	batcher   *batcher
	// progress is that of each stream after its last piece that was handed to the batcher.
	// Each element belongs to its stream's goroutine.
	progress []sink.Progress
	// refused and advanced are the streams with a piece that was not stored, and those that have come further. An element
	// belongs to the batcher while a piece of the stream waits, and else to its goroutine.
	refused, advanced []bool
}

// newSession returns a session of the current resources. The status has them from then on.
func (t *Transfer) newSession(first bool) *session {
	select {
	case <-t.changed:
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = newStatus(t.resources, t.status)
	s := &session{Transfer: t, resources: t.resources, first: first}
	for _, r := range s.resources {
		if r.Gone > 0 {
			s.leaving.Add(1)
		}
	}
	return s
}

// run opens the sink, and follows the resources until ctx is done or an error occurs.
func (s *session) run(ctx context.Context) error {
	defer func() { s.closed = s.sink.Close() }() // what was committed stays
	streams := make([]sink.Stream, len(s.resources))
	for i, r := range s.resources {
		streams[i] = r.Stream
		streams[i].Seen = s.options.Clock.Now()
	}
	stored, err := s.sink.Open(ctx, streams)
	if err != nil {
		return err
	}
	s.opened = true
	s.enterEpochs(stored)
	s.begin(stored)
	s.Transfer.opened(s.resources)
	s.batcher = newBatcher(s, stored)
	s.failures = make([]error, len(s.resources))
	s.refused, s.advanced = make([]bool, len(s.resources)), make([]bool, len(s.resources))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.batcher.run(ctx) })
	group.Go(func() error { return s.awaitChange(ctx) })
	for i := range s.resources {
		group.Go(func() error { return s.follow(ctx, i, &stored[i]) })
	}
	return group.Wait()
}

// awaitChange ends the session when its resources have changed. After several changes it waits for more: meanwhile the
// session stores what it has.
func (s *session) awaitChange(ctx context.Context) error {
	select {
	case <-s.changed:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := pause.For(ctx, s.changes.next(time.Now())); err != nil {
		return context.Cause(ctx)
	}
	return errChanged
}

// recovered reports whether the sink works again after the session, which has ended: a batch was committed, and no
// stream is left in stuck. These are the streams of pieces that were not stored, until they come further: what is
// committed of the others says nothing about a piece that no attempt can store. It keeps stuck current.
func (s *session) recovered(stuck map[stream.Identity]bool) bool {
	if !s.opened {
		return false
	}
	maps.DeleteFunc(stuck, func(id stream.Identity, _ bool) bool {
		i := slices.IndexFunc(s.resources, func(r Resource) bool { return r.ID == id })
		return i < 0 || s.advanced[i]
	})
	recovered := s.batcher.commits > 0 && len(stuck) == 0
	for i, r := range s.resources {
		if s.refused[i] {
			stuck[r.ID] = true
		}
	}
	return recovered
}

// end returns the reason of the end of a session whose ctx is done: what could not be stored although the end was
// requested, or the cause of ctx. A sink that is unavailable is none; a state on disk that cannot be written is one.
func (s *session) end(ctx context.Context) error {
	for _, err := range append(s.failures, s.closed) {
		switch {
		case err == nil, errors.Is(err, ctx.Err()), errors.Is(err, context.Cause(ctx)):
		case errors.Is(err, errRewound), errors.Is(err, errChanged), errors.As(err, new(*sink.Unavailable)):
		default:
			return err
		}
	}
	return context.Cause(ctx)
}

// enterEpochs sets the least next epoch of each stream: the greatest one of its line. A stream
// without a complete list has no history, and begins in that epoch.
func (s *session) enterEpochs(stored []sink.Stored) {
	newest := map[int]int{} // line → epoch
	for i, r := range s.resources {
		newest[r.Line] = max(newest[r.Line], stored[i].Progress.Epoch)
	}
	for i, r := range s.resources {
		p := &stored[i].Progress
		p.Floor = newest[r.Line]
		if !p.Started() {
			p.Epoch = p.Floor
		}
		s.progress = append(s.progress, *p)
	}
}

// follow runs the stream of one resource. A full disk of the state is a failure of the sink, which is tried again.
func (s *session) follow(ctx context.Context, i int, stored *sink.Stored) error {
	keepsState := stored.State != nil
	err := s.deliver(ctx, i, stored)
	s.failures[i] = err
	if keepsState && sink.DiskFull(err) {
		s.refused[i], s.advanced[i] = true, false // what the receiver has is delivered again
		return &sink.Unavailable{Err: err}
	}
	return err
}

// deliver runs the stream of one resource. It frees the stored entries.
func (s *session) deliver(ctx context.Context, i int, stored *sink.Stored) error {
	r := s.resources[i]
	target, err := s.stream(ctx, i, stored)
	if err != nil {
		return fmt.Errorf("%s: %w", r.ID.Resource, err)
	}
	stored.Entries = nil
	if p := stored.Progress; p.Epoch < p.Floor {
		if err := target.Invalidate(ctx, keepwatch.GapRewind); err != nil {
			return err
		}
	}
	if r.Gone > 0 {
		return s.leave(ctx, r, target)
	}
	options := reflector.Options{ProbeAfterOutage: true, Observe: func(n reflector.Notice) { s.observe(i, n) }}
	if !s.first || r.Patient {
		options.StartupDeadline = -1
	}
	f := reflector.New(r.Source, target, options)
	s.entered(i, f)
	return f.Run(ctx)
}

// leave delivers what is left of a resource that is gone. The last one of the session ends it.
func (s *session) leave(ctx context.Context, r Resource, target *stream.Stream) error {
	if err := target.End(ctx, r.Gone, keepwatch.GapExpired); err != nil {
		return err
	}
	if s.leaving.Add(-1) > 0 {
		return nil
	}
	s.forget(s.resources)
	return errChanged
}

// stream returns the stream of one resource, which continues from what is stored.
func (s *session) stream(ctx context.Context, i int, stored *sink.Stored) (*stream.Stream, error) {
	r := s.resources[i]
	options := stream.Options{Source: stream.Defined(r.Source)}
	if r.Project != nil {
		options.Project = func(object []byte) ([]byte, error) {
			text, err := r.Project(object)
			if err != nil {
				err = fmt.Errorf("%s: %w", r.ID.Resource, err)
			}
			return text, err
		}
	}
	if stored.State == nil {
		return stream.NewTransactional(stored.Stored, func(p stream.Piece) error { return s.write(ctx, i, p) }, options)
	}
	options.Kind, options.Metadata = r.kind(), options.Project
	write := func(p stream.Piece) (string, error) {
		if err := s.write(ctx, i, p); err != nil {
			return "", err
		}
		note, err := json.Marshal(s.progress[i])
		return string(note), err
	}
	return stream.NewAtLeastOnce(stored.State, write, options)
}

// write waits until a piece is committed.
func (s *session) write(ctx context.Context, i int, p stream.Piece) error {
	piece := sink.Piece{Stream: i, Piece: p, Before: s.progress[i], After: s.progress[i].After(p)}
	if err := s.batcher.write(ctx, piece); err != nil {
		return err
	}
	s.progress[i] = piece.After
	return nil
}
