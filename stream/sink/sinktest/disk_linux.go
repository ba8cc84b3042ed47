package sinktest

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// MountDisk mounts a file system of its own, which ends with the test, and returns its path. It skips the test if the process may
// not mount one.
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
