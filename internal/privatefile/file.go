// Package privatefile writes files with secrets.
package privatefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/keepwatch/keepwatch/internal/durable"
)

var errNotRegular = errors.New("not a regular file")

// Check returns an error if path is a device or a pipe, which Write does not replace. It is called before the former
// file is read: to open a pipe would wait for its writer.
func Check(path string) error {
	// Rename refuses a directory
	if about, err := os.Stat(path); err == nil && !about.IsDir() && !about.Mode().IsRegular() {
		return &fs.PathError{Op: "replace", Path: path, Err: errNotRegular}
	}
	return nil
}

// Write replaces a file in one step. Only its owner can read the new one: a program that has opened the former file
// does not see the content, and a link is replaced, not followed. A device or a pipe is not replaced, but an error.
func Write(path string, content []byte) error {
	if err := Check(path); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return durable.SyncDir(filepath.Dir(path))
}
