package postgres_test

import (
	"database/sql"
	"errors"
	"flag"
	"math/rand/v2"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 100, "how many things happen to the sources of a run")
)

// TestWorld compares the tables with sources that change, expire and are restored, while
// commits fail and Postgres is killed.
func TestWorld(t *testing.T) {
	t.Parallel() // it mostly waits
	runWorld(t, *stepsFlag, func(*postgres.Sink) {})
}

// TestWorldGrouped is TestWorld with states that join groups as soon as they have ended.
func TestWorldGrouped(t *testing.T) {
	t.Parallel() // it mostly waits
	server := runWorld(t, *stepsFlag, func(s *postgres.Sink) { s.SetGroup(0, 1, 0) })
	checkGroups(t, server, "world")
	if n := server.SQL(`SELECT count(*) > 10 FROM world.groups`); n != "t" {
		t.Error("too few groups")
	}
}

func runWorld(t *testing.T, steps int, set func(*postgres.Sink)) *pgtest.Server {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	server := pgtest.Start(t)
	s := postgres.New(server.URL("world"), postgres.Options{})
	set(s)
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kills := 0
	report, err := sinktest.Run(t.Context(), sinktest.Config{
		Sink: s, Tables: sinktest.Tables{DB: read(t, server.URL("world"))}, Seed: seed, Steps: steps,
		ReplacesNUL: true, Patience: await.Deadline,
		Disturb: func() {
			kills++
			server.Kill()
			server.Restart()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds, Postgres killed %d times", seed, report.Cuts,
		report.Gaps, report.Failed, report.Epochs, kills)
	if report.Cuts < steps/200+1 {
		t.Error("too little has happened")
	}
	return server
}

// TestMutants checks that the run notices sinks with a planted fault.
func TestMutants(t *testing.T) {
	t.Parallel() // it mostly waits
	server := pgtest.Start(t)
	sinktest.TestMutants(t, nil, func(t *testing.T, name string) sinktest.Config {
		s := postgres.New(server.URL(name), postgres.Options{})
		open(t, s)
		s.Close()
		return sinktest.Config{Sink: s, Tables: sinktest.Tables{DB: read(t, server.URL(name))}, ReplacesNUL: true}
	})
}

func open(t *testing.T, s *postgres.Sink) []sink.Stored {
	t.Helper()
	var stored []sink.Stored
	await.NoError(t, "the sink opens", func() (err error) {
		// Unavailable: the server has not noticed the end of an earlier connection.
		if stored, err = s.Open(t.Context(), sinktest.Streams()); err != nil && !errors.As(err, new(*sink.Unavailable)) {
			t.Fatal(err)
		}
		return err
	})
	t.Cleanup(func() { s.Close() })
	return stored
}

// read connects as another program does.
func read(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
