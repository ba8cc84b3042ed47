// Package filelock locks files, so that one process at a time uses what they stand for.
//
//	lock.go          the contract
//	lock_windows.go  TryLock on Windows
//	lock_other.go    TryLock everywhere else
package filelock

import "errors"

// ErrLocked is the error of a file that another process, or another part of this one, has locked.
var ErrLocked = errors.New("the file is locked")
