package files_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/keepwatch/keepwatch/sinks/files"
	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestFullDisk fills the disk of the files and the state at times, for longer than several attempts. In the end nothing
// is missing.
func TestFullDisk(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	disk := sinktest.MountDisk(t, 20<<10)
	out := filepath.Join(disk, "out")
	fold := newFollower(out)
	synctest.Test(t, func(t *testing.T) {
		sinktest.RunOnFullDisk(t, disk, sinktest.Config{
			Sink: statedir.New(filepath.Join(disk, "state"), files.New(out, files.Options{MaxSize: 20_000,
				Compression: files.Gzip})),
			Tables: fold, Repeats: true, Seed: seed, Steps: 150,
		})
		t.Logf("%d lines, %d repeated", fold.Lines, fold.Repeated)
	})
}

// TestReadOnlyDisk opens a directory that cannot be written: a clear error, and no other attempt.
func TestReadOnlyDisk(t *testing.T) {
	disk := sinktest.MountDisk(t, 1024)
	dir := filepath.Join(disk, "out")
	d := files.New(dir, files.Options{})
	open(t, d, 0)
	write(t, d, batch(2, 5, 0))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sinktest.MakeReadOnly(t, disk)
	err := files.New(dir, files.Options{}).Open(t.Context(), pods, sink.Delivered{State: "s",
		Progress: []sink.Progress{{Cursor: 5}}})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "read-only file system") ||
		errors.As(err, new(*sink.Unavailable)) {
		t.Error(err)
	}
	if text, err := readAll(dir); err != nil || len(text) == 0 {
		t.Errorf("%s, %v", text, err)
	}
}
