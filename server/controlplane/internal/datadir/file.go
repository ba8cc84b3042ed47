package datadir

import (
	"errors"
	"io/fs"
)

// Cause returns the error of a file operation without the operation and the path, for a message
// that names the file itself.
func Cause(err error) error {
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		return pathError.Err
	}
	return err
}
