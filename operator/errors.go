package operator

import (
	"errors"
	"time"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
)

// The wait after an error before a handler is called again, unless the error, the handler's
// Backoff or the operator's DefaultBackoff sets another one: firstBackoff after the first
// call, twice as long after each further call, at most maxBackoff.
const (
	// firstBackoff is that of client-go's workqueues.
	firstBackoff = 5 * time.Millisecond
	// maxBackoff is kopf's fixed delay, so that no handler waits longer than with kopf.
	maxBackoff = time.Minute
)

// Temporary returns an error after which the handler is called again, after the handler's
// Backoff and regardless of its OnError. It returns nil for nil.
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

// ErrorMode sets how errors are handled that are neither temporary nor permanent.
type ErrorMode uint8

const (
	// Retry calls the handler again after its Backoff. It is the default.
	Retry ErrorMode = iota
	// Fail treats the error as permanent.
	Fail
	// Ignore logs the error and treats the call as successful.
	Ignore
)

// verdicts are the modes in the words of cycle.
var verdicts = map[ErrorMode]cycle.OnError{Retry: cycle.Retry, Fail: cycle.Fail, Ignore: cycle.Ignore}

// ErrStopped is the cause with which a handler's context ends when the operator was
// stopped and the handler has not returned within [ShutdownGrace].
var ErrStopped = errors.New("the operator stops")

// ErrNotSelected is the cause of the end of a timer's or daemon's context when its object is
// deleted or no longer passes the filter.
var ErrNotSelected = errors.New("the object is deleted or no longer passes the filter")
