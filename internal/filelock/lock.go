// Package filelock locks files, so that one process at a time uses what they stand for.
package filelock

import (
	"errors"
	"io"

	"github.com/gofrs/flock"
)

// ErrLocked is the error of a file that another process, or another part of this one, has locked.
var ErrLocked = errors.New("the file is locked")

// TryLock opens a file, which it creates if there is none, and locks it until it is closed or the process ends. It does
// not wait: of a locked file it returns ErrLocked.
func TryLock(path string) (io.Closer, error) {
	lock := flock.New(path)
	locked, err := lock.TryLock()
	switch {
	case err != nil:
		return nil, err
	case !locked:
		_ = lock.Close()
		return nil, ErrLocked
	}
	return lock, nil
}
