package cycle

import (
	"errors"
	"fmt"
	"time"
)

// OnError says what becomes of an error that says nothing of it itself. The set is
// closed.
type OnError uint8

const (
	Retry  OnError = iota // the handler is called again after its backoff
	Fail                  // the handler has failed for good
	Ignore                // the handler has succeeded
)

// Temporary is an error that asks for another call after the handler's backoff.
type Temporary struct{ Err error }

// RetryAfter is an error that asks for another call after a delay.
type RetryAfter struct {
	Err   error
	Delay time.Duration
}

// Permanent is an error that another call would not change.
type Permanent struct{ Err error }

func (e *Temporary) Error() string  { return e.Err.Error() }
func (e *Temporary) Unwrap() error  { return e.Err }
func (e *RetryAfter) Error() string { return e.Err.Error() }
func (e *RetryAfter) Unwrap() error { return e.Err }
func (e *Permanent) Error() string  { return e.Err.Error() }
func (e *Permanent) Unwrap() error  { return e.Err }

// Verdict is what becomes of a handler after a call.
type Verdict struct {
	// Final: it is not called again.
	Final bool
	// Delay is the wait before the next call.
	Delay time.Duration
	// Err is what went wrong, nil if nothing that counts.
	Err error
}

// Judge says what becomes of a handler after a call that has returned err. retries
// is how often it was called before, and ran how long after its first call it is.
// A limit that the next call would meet is met now.
func (h Handler) Judge(err error, retries int, ran time.Duration) Verdict {
	var temporary *Temporary
	var after *RetryAfter
	var permanent *Permanent
	switch {
	case err == nil:
		return Verdict{Final: true}
	case errors.As(err, &permanent):
		return Verdict{Final: true, Err: err}
	case errors.As(err, &after):
		return h.retry(err, max(0, after.Delay), retries, ran)
	case errors.As(err, &temporary):
		return h.retry(err, h.Backoff.Wait(retries), retries, ran)
	case h.OnError == Fail:
		return Verdict{Final: true, Err: err}
	case h.OnError == Ignore:
		return Verdict{Final: true}
	}
	return h.retry(err, h.Backoff.Wait(retries), retries, ran)
}

func (h Handler) retry(err error, delay time.Duration, retries int, ran time.Duration) Verdict {
	if limit := h.exhausted(retries+1, ran+delay); limit != nil {
		return Verdict{Final: true, Err: fmt.Errorf("%w; last error: %w", limit, err)}
	}
	return Verdict{Delay: delay, Err: err}
}

// exhausted says which limit a handler has reached, nil if none.
func (h Handler) exhausted(retries int, ran time.Duration) error {
	switch {
	case h.Retries > 0 && retries >= h.Retries:
		return fmt.Errorf("gave up after %d calls", retries)
	case h.Timeout > 0 && ran >= h.Timeout:
		return fmt.Errorf("gave up, because the timeout of %v is over", h.Timeout)
	}
	return nil
}
