package sqlite_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestFullDisk fills the disk of the file at times, for longer than several attempts. In the end nothing is missing.
func TestFullDisk(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	disk := sinktest.MountDisk(t, 20<<10)
	path := filepath.Join(disk, "state.db")
	synctest.Test(t, func(t *testing.T) {
		s := sqlite.New(path, sqlite.Options{})
		open(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sinktest.RunOnFullDisk(t, disk, sinktest.Config{Sink: s, Tables: sinktest.Tables{DB: read(t, path)}, Seed: seed, Steps: 150})
	})
}

// TestReadOnlyDisk opens a file that cannot be written: a clear error, and no other attempt.
func TestReadOnlyDisk(t *testing.T) {
	disk := sinktest.MountDisk(t, 1024)
	path := filepath.Join(disk, "state.db")
	s := sqlite.New(path, sqlite.Options{})
	open(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sinktest.MakeReadOnly(t, disk)
	_, err := sqlite.New(path, sqlite.Options{}).Open(t.Context(), sinktest.Streams())
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "read-only file system") || errors.As(err, new(*sink.Unavailable)) {
		t.Error(err)
	}
}

// TestFileInUse writes while another program has a transaction: it waits for that, and another attempt succeeds after it.
func TestFileInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := sqlite.New(path, sqlite.Options{})
	open(t, s)
	other, err := read(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	err = write(t, s, 1, 5, time.Now(), event(keepwatch.Added, "a", 5)) // after 10 s
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "locked") {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if stored := open(t, s); len(stored[0].Entries) != 0 {
		t.Errorf("stored: %+v", stored[0].Entries)
	}
	if err := write(t, s, 1, 5, time.Now(), event(keepwatch.Added, "a", 5)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
