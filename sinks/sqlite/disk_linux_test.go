package sqlite_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/stream"
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
		sinktest.RunOnFullDisk(t, disk, sinktest.Config{Sink: s, Tables: sinktest.Tables{DB: read(t, path)}, Seed: seed,
			Steps: 150})
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
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "read-only file system") ||
		errors.As(err, new(*sink.Unavailable)) {
		t.Error(err)
	}
}

// TestFileInUse writes while another program has a transaction: it waits for that, and another attempt succeeds after
// it.
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
	if !errors.As(err, new(*sink.Unavailable)) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "locked") {
		t.Fatal(err)
	}
	if _, err := other.ExecContext(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if stored := open(t, s); stored[0].Entries.Len() != 0 {
		t.Errorf("stored: %+v", slices.Collect(stored[0].Entries.All()))
	}
	if err := write(t, s, 1, 5, time.Now(), event(keepwatch.Added, "a", 5)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestHistoryBesideAWriterElsewhere reads a file through a folder that is read-only here, as a volume of another pod,
// and that is written through another one: what is written after the file was opened is seen.
func TestHistoryBesideAWriterElsewhere(t *testing.T) {
	disk, view := sinktest.MountDisk(t, 4<<10), t.TempDir()
	if err := syscall.Mount(disk, view, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(view, 0) })
	if err := syscall.Mount("", view, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s := sqlite.New(filepath.Join(disk, "state.db"), sqlite.Options{})
	open(t, s)
	if err := errors.Join(write(t, s, 1, 5, time.Now(), event(keepwatch.Added, "a", 5), stream.Synced{Revision: 5,
		Count: 1}), s.Close()); err != nil {
		t.Fatal(err)
	}
	openHistory := func() *sqlite.History {
		history, err := sqlite.OpenHistory(t.Context(), filepath.Join(view, "state.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { history.Close() })
		return history
	}
	history := openHistory()
	has := func(when string, want keepwatch.Revision) {
		t.Helper()
		if err := history.Snapshot(t.Context(), func(tables sink.Snapshot) error {
			all, err := tables.Status(t.Context())
			if err != nil || all[2].Progress.Cursor != want {
				t.Errorf("%s: %+v, %v", when, all, err)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	has("nobody has written", 5)
	moved := filepath.Join(disk, "moved")
	if err := os.Rename(filepath.Join(disk, "state.db"), moved); err != nil {
		t.Fatal(err)
	}
	if err := history.Snapshot(t.Context(), func(sink.Snapshot) error { return nil }); err == nil {
		t.Error("the file is gone")
	}
	if err := os.Rename(moved, filepath.Join(disk, "state.db")); err != nil {
		t.Fatal(err)
	}
	has("the file is back", 5)
	open(t, s)
	if err := write(t, s, 2, 9, time.Now(), event(keepwatch.Added, "b", 9)); err != nil {
		t.Fatal(err)
	}
	has("the writer is open", 9)
	before := history
	history = openHistory()
	has("opened beside the writer", 9)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	has("opened beside the writer, which has ended", 9)
	history = before
	has("the writer has ended", 9)
	open(t, s)
	if err := errors.Join(write(t, s, 3, 12, time.Now(), event(keepwatch.Added, "c", 12)), s.Close()); err != nil {
		t.Fatal(err)
	}
	has("another writer has ended", 12)
}
