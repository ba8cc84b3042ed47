package sqlite_test

import (
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

var (
	seedFlag  = flag.Uint64("sinks.seed", 1, "draw changes and faults as a run did that printed this seed; 0 draws anew")
	stepsFlag = flag.Int("sinks.steps", 600, "how many things happen to the sources of a run")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if path := os.Getenv(compressingEnv); path != "" {
		fmt.Fprintln(os.Stderr, compressUntilKilled(path))
		os.Exit(1)
	}
	os.Exit(await.Tests(m))
}

// TestWorld compares the tables with sources that change, expire and are restored, while
// commits fail.
func TestWorld(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	report := runWorld(t, seed, *stepsFlag, func(*sqlite.Sink) {})
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: %d cuts, %d gaps, %d commits failed, %d rewinds", seed, report.Cuts, report.Gaps, report.Failed,
		report.Epochs)
	if *seedFlag == 1 && *stepsFlag >= 1000 && (report.Cuts < 100 || report.Gaps < 30 || report.Failed < 30 ||
		report.Epochs < 3) {
		t.Error("too little has happened")
	}
}

// TestWorldCompressed is TestWorld with states that are compressed as soon as they have ended.
func TestWorldCompressed(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-sinks.seed %d", seed)
	report := runWorld(t, seed, *stepsFlag/3, func(s *sqlite.Sink) { s.SetCompress(0, 0) })
	for _, p := range report.Problems {
		t.Error(p)
	}
}

func runWorld(t *testing.T, seed uint64, steps int, set func(*sqlite.Sink)) (report sinktest.Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		s := create(t, path)
		set(s)
		var err error
		report, err = sinktest.Run(t.Context(), sinktest.Config{
			Sink: s, Tables: sinktest.Tables{DB: read(t, path)}, Seed: seed, Steps: steps, Patience: 10 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	return report
}

// read opens the file as another program does. It waits where SQLite locks the file: see [TestReaders].
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
	sinktest.TestMutants(t, synctest.Test, func(t *testing.T, name string) sinktest.Config {
		path := filepath.Join(t.TempDir(), name)
		return sinktest.Config{Sink: create(t, path), Tables: sinktest.Tables{DB: read(t, path)}}
	})
}

// create creates the tables of a file.
func create(t *testing.T, path string) *sqlite.Sink {
	t.Helper()
	s := sqlite.New(path, sqlite.Options{})
	if _, err := s.Open(t.Context(), sinktest.Streams()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}
