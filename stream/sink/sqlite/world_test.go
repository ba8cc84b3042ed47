package sqlite_test

import (
	"context"
	"database/sql"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
	"github.com/keepwatch/keepwatch/stream/sink/sqlite"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 600, "how many things happen to the sources of a run")
)

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// TestWorld compares the tables with sources that change, expire and are restored, while
// commits fail.
func TestWorld(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	report := runWorld(t, seed, *stepsFlag, func(s sink.Sink) sink.Sink { return s })
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds", seed, report.Cuts, report.Gaps, report.Failed, report.Epochs)
	if *seedFlag == 1 && *stepsFlag >= 1000 && (report.Cuts < 100 || report.Gaps < 30 || report.Failed < 30 || report.Epochs < 3) {
		t.Error("too little has happened")
	}
}

func runWorld(t *testing.T, seed uint64, steps int, wrap func(sink.Sink) sink.Sink) (report sinktest.Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		s := sqlite.New(path, sqlite.Options{})
		if _, err := s.Open(t.Context(), sinktest.Streams()); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		report, err = sinktest.Run(t.Context(), sinktest.Config{
			Sink: wrap(s), Tables: sinktest.Tables{DB: read(t, path)}, Seed: seed, Steps: steps, Patience: 10 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// read opens the file as another program does.
func read(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestMutants checks that the run notices sinks with a planted fault.
func TestMutants(t *testing.T) {
	for name, mutant := range map[string]func(sink.Sink) sink.Sink{
		"cursor before rows":       func(s sink.Sink) sink.Sink { return &torn{Sink: s, cursorFirst: true} },
		"rows before cursor":       func(s sink.Sink) sink.Sink { return &torn{Sink: s} },
		"delete forgotten in gaps": func(s sink.Sink) sink.Sink { return &forgetful{s} },
		"a commit that is lost":    func(s sink.Sink) sink.Sink { return &lossy{Sink: s} },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 5; seed++ {
				if report := runWorld(t, seed, 60, mutant); len(report.Problems) > 0 {
					t.Logf("seed %d: %s", seed, report.Problems[0])
					return
				}
			}
			t.Error("not noticed in 5 runs")
		})
	}
}

// torn commits the rows and the cursor in two transactions, and fails between them at times.
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
