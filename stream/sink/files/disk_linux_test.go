package files_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/sink/files"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
	"github.com/keepwatch/keepwatch/stream/sink/statedir"
)

// mount mounts a file system of its own.
func mount(t *testing.T, kilobytes int) (path string) {
	t.Helper()
	path = t.TempDir()
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("size=%dk", kilobytes)); err != nil {
		t.Skipf("SKIPPED: full disks are not tested, because this process may not mount one (%v): run it as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
	return path
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills the disk of the files and the state at times, for longer than several attempts. In the end nothing
// is missing.
func TestFullDisk(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	disk := mount(t, 20<<10)
	out, filler := filepath.Join(disk, "out"), filepath.Join(disk, "filler")
	filled := 0
	fold := newFollower(out)
	synctest.Test(t, func(t *testing.T) {
		report, err := sinktest.Run(t.Context(), sinktest.Config{
			Sink:   statedir.New(filepath.Join(disk, "state"), files.New(out, files.Options{MaxSize: 20_000, Compression: files.Gzip})),
			Tables: fold, Repeats: true, Seed: seed, Steps: 150, Patience: 10 * time.Minute,
			Disturb: func() {
				filled++
				fill(t, filler)
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
	disk := mount(t, 1024)
	dir := filepath.Join(disk, "out")
	d := files.New(dir, files.Options{})
	open(t, d, 0)
	write(t, d, batch(2, 5, 0))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	err := files.New(dir, files.Options{}).Open(t.Context(), pods, sink.Delivered{State: "s", Progress: []sink.Progress{{Cursor: 5}}})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "read-only file system") || errors.As(err, new(*sink.Unavailable)) {
		t.Error(err)
	}
	if text, err := readAll(dir); err != nil || len(text) == 0 {
		t.Errorf("%s, %v", text, err)
	}
}
