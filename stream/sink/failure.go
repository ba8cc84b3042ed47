package sink

import (
	"errors"
	"fmt"
	"syscall"
)

// Unavailable is an error of a sink that may be gone at another attempt: a connection that
// was lost, a full disk, a sink that another process writes to. Every other error is final.
type Unavailable struct {
	Err error
	// Standby is true if another process writes to the sink, and this one waits for its end: nothing has failed.
	Standby bool
}

// Unavailablef returns an Unavailable whose cause is fmt.Errorf(format, args...).
func Unavailablef(format string, args ...any) *Unavailable {
	return &Unavailable{Err: fmt.Errorf(format, args...)}
}

func (u *Unavailable) Error() string { return u.Err.Error() }
func (u *Unavailable) Unwrap() error { return u.Err }

// DiskFull reports whether an error is that of a disk without space, or of a quota that is used up. Another
// attempt may succeed after somebody has freed space.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
