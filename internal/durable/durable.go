// Package durable writes files and folders that survive a loss of power. POSIX makes a file's content durable by fsync
// of the file, and its name by fsync of its folder.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// WriteFile replaces a file in one step: after a loss of power it has the old or the new content, and
// after WriteFile has returned nil the new one. Only its owner can read it. One process at a time may write a
// file: a temporary file beside it, with the suffix ".new", may remain. The next call does not write to that one:
// others may have the right to read it, or have it open.
func WriteFile(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// MkdirAll makes a folder that only its owner can use, and the folders above it, unless they exist. When it returns nil
// their names are durable, also that of a folder which another process made and did not sync.
func MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	parents := []string{filepath.Dir(dir)}
	for above := parents[0]; above != filepath.Dir(above); above = filepath.Dir(above) {
		if _, err := os.Stat(above); err == nil {
			break
		}
		parents = append(parents, filepath.Dir(above))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir makes the names in a folder durable. It does nothing where this process cannot: on Windows, on file systems
// that refuse it, and in a folder that the user may write and not read.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
