//go:build !windows

package filelock

import (
	"errors"
	"os"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// TryLock opens a file, which it creates if there is none, and locks it until it is closed or the process ends. It does
// not wait: of a locked file it returns ErrLocked.
func TryLock(path string) (*os.File, error) {
	locked, err := fileutil.TryLockFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return locked.File, nil
}
