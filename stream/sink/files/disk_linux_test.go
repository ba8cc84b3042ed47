package files_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/files"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
	"github.com/keepwatch/keepwatch/stream/sink/statedir"
)

// TestFullDisk fills the disk of the files and the state at times, for longer than several attempts. In the end nothing
// is missing.
func TestFullDisk(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	disk := sinktest.MountDisk(t, 20<<10)
	out, filler := filepath.Join(disk, "out"), filepath.Join(disk, "filler")
	filled := 0
	fold := newFollower(out)
	synctest.Test(t, func(t *testing.T) {
		report, err := sinktest.Run(t.Context(), sinktest.Config{
			Sink:   statedir.New(filepath.Join(disk, "state"), files.New(out, files.Options{MaxSize: 20_000, Compression: files.Gzip})),
			Tables: fold, Repeats: true, Seed: seed, Steps: 150, Patience: 10 * time.Minute,
			Disturb: func() {
				filled++
				sinktest.FillDisk(t, filler)
				time.Sleep(5 * time.Second)
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Problems {
			t.Error(p)
		}
		t.Logf("seed %d: the disk was full %d times; %d cuts, %d lines, %d repeated", seed, filled, report.Cuts, fold.Lines, fold.Repeated)
	})
	if *seedFlag == 1 && filled == 0 {
		t.Error("the disk was never full")
	}
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
	err := files.New(dir, files.Options{}).Open(t.Context(), pods, sink.Delivered{State: "s", Progress: []sink.Progress{{Cursor: 5}}})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "read-only file system") || errors.As(err, new(*sink.Unavailable)) {
		t.Error(err)
	}
	if text, err := readAll(dir); err != nil || len(text) == 0 {
		t.Errorf("%s, %v", text, err)
	}
}
