package sinktest

import (
	"context"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Mutants are the planted faults of sinks, by name. [Run] must notice each of them.
var Mutants = map[string]func(sink.Sink) sink.Sink{
	"cursor before events":     func(s sink.Sink) sink.Sink { return &torn{Sink: s, cursorFirst: true} },
	"events before cursor":     func(s sink.Sink) sink.Sink { return &torn{Sink: s} },
	"delete forgotten in gaps": func(s sink.Sink) sink.Sink { return &forgetful{s} },
	"a commit that is lost":    func(s sink.Sink) sink.Sink { return &lossy{Sink: s} },
}

// torn commits the events and the cursor of some batches in two transactions, and fails between them.
type torn struct {
	sink.Sink
	cursorFirst bool
	n           int
	last        map[int]sink.Piece // of each stream
}

func (s *torn) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	stored, err := s.Sink.Open(ctx, streams)
	s.last = map[int]sink.Piece{}
	for i, found := range stored {
		s.last[i] = sink.Piece{Piece: stream.Piece{Position: found.Position, Count: uint64(len(found.Entries))}, After: found.Progress}
	}
	return stored, err
}

func (s *torn) Write(ctx context.Context, batch sink.Batch) error {
	s.n++
	half := sink.Batch{Time: batch.Time}
	for _, p := range batch.Pieces {
		last := s.last[p.Stream]
		s.last[p.Stream] = p
		if s.cursorFirst {
			p.Messages = nil
		} else {
			p.After, p.Position, p.Count = last.After, last.Position, last.Count
		}
		half.Pieces = append(half.Pieces, p)
	}
	if s.n%9 != 0 {
		return s.Sink.Write(ctx, batch)
	}
	if err := s.Sink.Write(ctx, half); err != nil {
		return err
	}
	return sink.Unavailablef("killed between two transactions")
}

// forgetful does not delete what a list shows to be deleted.
type forgetful struct{ sink.Sink }

func (s *forgetful) Write(ctx context.Context, batch sink.Batch) error {
	changed := sink.Batch{Time: batch.Time}
	for _, p := range batch.Pieces {
		if p.Before.Gap != "" {
			p.Messages = slices.DeleteFunc(slices.Clone(p.Messages), func(m stream.Message) bool {
				e, ok := m.(stream.Event)
				return ok && e.Type == keepwatch.Deleted
			})
		}
		changed.Pieces = append(changed.Pieces, p)
	}
	return s.Sink.Write(ctx, changed)
}

// lossy reports a batch as committed that is not.
type lossy struct {
	sink.Sink
	n int
}

func (s *lossy) Write(ctx context.Context, batch sink.Batch) error {
	if s.n++; s.n%40 == 0 {
		return nil
	}
	return s.Sink.Write(ctx, batch)
}
