package operator

import (
	"errors"
	"time"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// DefaultDelay is how long a handler waits after an error before it is called again,
// unless the error or the handler's Backoff says otherwise.
const DefaultDelay = time.Minute

// Temporary is an error after which a handler is called again: after delay, or after
// DefaultDelay if there is none. It returns nil for nil.
func Temporary(err error, delay ...time.Duration) error {
	if err == nil {
		return nil
	}
	d := DefaultDelay
	if len(delay) > 0 {
		d = delay[0]
	}
	return &cycle.Temporary{Err: err, Delay: d}
}

// Permanent is an error after which a handler is not called again for the same
// change. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &cycle.Permanent{Err: err}
}

// Mode says what becomes of errors that are neither temporary nor permanent.
type Mode = cycle.OnError

const (
	// Retry calls the handler again after its Backoff. It is the default.
	Retry Mode = cycle.Retry
	// Fail takes the error for a permanent one.
	Fail Mode = cycle.Fail
	// Ignore logs the error and takes the handler for done.
	Ignore Mode = cycle.Ignore
)

// ErrStopped is the cause with which the contexts of handlers end when the operator
// has stopped and they have not come to an end in time.
var ErrStopped = errors.New("the operator stops")

// ErrUnwanted is the cause with which the context of a daemon or a timer ends when
// its object is deleted or no longer passes the filter.
var ErrUnwanted = errors.New("the object no longer asks for it")
