package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// TryLock opens a file, which it creates if there is none, and locks it until it is closed or the process ends. It does
// not wait: of a locked file it returns ErrLocked. (etcd's fileutil refuses these flags on Windows, and takes a lock of
// another process for its own.)
func TryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const now = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(file.Fd()), now, 0, 1, 0, &windows.Overlapped{})
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return nil, ErrLocked
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}
