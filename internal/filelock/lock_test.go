package filelock

import (
	"errors"
	"path/filepath"
	"testing"
)

// A file has one lock at a time, until it is closed.
func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("a locked file: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(filepath.Join(path, "below", "a", "file")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("a file that cannot be created: %v", err)
	}
}
