package operator

import (
	"errors"
	"time"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// DefaultDelay is the wait after an error before a handler is called again, unless the
// error or the handler's Backoff says otherwise.
const DefaultDelay = time.Minute

// Temporary returns an error after which the handler is called again, after the handler's
// Backoff and whatever its OnError says. It returns nil for nil.
func Temporary(err error) error {
	if err == nil {
		return nil
	}
	return &cycle.Temporary{Err: err}
}

// RetryAfter returns an error after which the handler is called again, after delay. It
// returns nil for nil.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &cycle.RetryAfter{Err: err, Delay: delay}
}

// Permanent returns an error after which the handler is not called again for the same
// change. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &cycle.Permanent{Err: err}
}

// Mode says how errors are handled that are neither temporary nor permanent.
type Mode = cycle.OnError

const (
	// Retry calls the handler again after its Backoff. It is the default.
	Retry Mode = cycle.Retry
	// Fail treats the error as permanent.
	Fail Mode = cycle.Fail
	// Ignore logs the error and treats the call as successful.
	Ignore Mode = cycle.Ignore
)

// ErrStopped is the cause with which the contexts of handlers end when the operator
// has stopped and they have not come to an end in time.
var ErrStopped = errors.New("the operator stops")

// ErrUnwanted is the cause with which the context of a daemon or a timer ends when
// its object is deleted or no longer passes the filter.
var ErrUnwanted = errors.New("the object no longer asks for it")
