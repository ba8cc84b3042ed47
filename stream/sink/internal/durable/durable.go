// Package durable writes files that survive a crash of the machine, for sinks that store on the local disk.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// WriteFile replaces a file in one step: after a crash of the machine it has the old or the new content, and
// after WriteFile has returned nil the new one. Only its owner can read it. One process at a time may write a
// file: a temporary file beside it, with the suffix ".new", may remain after a crash.
func WriteFile(path string, content []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
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

// SyncDir makes the names in a directory durable. On Windows it does nothing: a directory cannot be flushed there.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
