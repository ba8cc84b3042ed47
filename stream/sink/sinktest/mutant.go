package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestMutants runs the sink of config with each of four planted faults, with one seed after the other until a run
// notices it. A run of the sink without a fault must have no problems, so that it is the fault which is noticed. config
// returns a run of an empty sink with a name of its own, of lower-case letters and digits. Its steps are 60, its
// patience is 10 s, and minutes without a fault. Each run is within bubble, such as [synctest.Test], if that is not
// nil.
func TestMutants(t *testing.T, bubble func(*testing.T, func(*testing.T)), config func(t *testing.T,
	name string) Config) {
	parallel := (*testing.T).Parallel // they wait
	if bubble != nil {
		parallel = func(*testing.T) {}
	} else {
		bubble = func(t *testing.T, run func(*testing.T)) { run(t) }
	}
	type change = func(sink.Sink) sink.Sink
	run := func(t *testing.T, name string, seed uint64, patience time.Duration, mutant change) (problems []string) {
		t.Helper()
		bubble(t, func(t *testing.T) {
			c := config(t, fmt.Sprint(strings.ReplaceAll(name, " ", ""), seed))
			c.Sink, c.Seed, c.Steps, c.Patience = mutant(c.Sink), seed, 60, patience
			report, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			problems = report.Problems
		})
		return problems
	}
	t.Run("no fault", func(t *testing.T) {
		parallel(t)
		for _, p := range run(t, "no fault", 0, await.Deadline, func(s sink.Sink) sink.Sink { return s }) {
			t.Error(p)
		}
	})
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			for seed := range uint64(5) {
				if problems := run(t, name, seed, 10*time.Second, mutant); len(problems) > 0 {
					t.Logf("seed %d: %s", seed, strings.TrimSpace(problems[0]))
					return
				}
			}
			t.Error("no seed has shown the fault")
		})
	}
}

// mutants are the planted faults.
var mutants = map[string]func(sink.Sink) sink.Sink{
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
		s.last[i] = sink.Piece{Piece: stream.Piece{Position: found.Position, Count: uint64(found.Entries.Len())},
			After: found.Progress}
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

// lossy reports one in ten of the batches with messages as committed, and does not commit it.
type lossy struct {
	sink.Sink
	n int
}

func (s *lossy) Write(ctx context.Context, batch sink.Batch) error {
	if slices.ContainsFunc(batch.Pieces, func(p sink.Piece) bool { return len(p.Messages) > 0 }) {
		if s.n++; s.n%10 == 0 {
			return nil
		}
	}
	return s.Sink.Write(ctx, batch)
}
