package sinktest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// MountDisk mounts a file system of its own, which ends with the test, and returns its path. It skips the test if the
// process may not mount one.
func MountDisk(t *testing.T, kilobytes int) (path string) {
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

// MakeReadOnly makes a mounted disk read-only.
func MakeReadOnly(t *testing.T, disk string) {
	t.Helper()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

// RunOnFullDisk runs the configuration while the disk is full at times, for longer than several attempts, and reports
// what was wrong. Call it in a bubble of synctest.
func RunOnFullDisk(t *testing.T, disk string, config Config) {
	t.Helper()
	filled, filler := 0, filepath.Join(disk, "filler")
	config.Patience = 10 * time.Minute
	config.Disturb = func() {
		filled++
		FillDisk(t, filler)
		time.Sleep(5 * time.Second)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Run(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Error(p)
	}
	t.Logf("seed %d: the disk was full %d times; %d cuts", config.Seed, filled, report.Cuts)
	if config.Seed == 1 && filled == 0 {
		t.Error("the disk was never full")
	}
}

// FillDisk writes a file until its disk is full.
func FillDisk(t *testing.T, path string) {
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
