package cycle

import (
	"errors"
	"fmt"
	"time"
)

// OnError determines how errors are handled that do not determine it themselves. The set is closed.
type OnError uint8

const (
	Retry  OnError = iota // the handler is called again after its backoff
	Fail                  // the handler has failed permanently
	Ignore                // the handler has succeeded
)

// Temporary is an error after which the handler is called again after its backoff.
type Temporary struct{ Err error }

// RetryAfter is an error after which the handler is called again after Delay.
type RetryAfter struct {
	Err   error
	Delay time.Duration
}

// Permanent is an error after which the handler is not called again.
type Permanent struct{ Err error }

func (e *Temporary) Error() string  { return e.Err.Error() }
func (e *Temporary) Unwrap() error  { return e.Err }
func (e *RetryAfter) Error() string { return e.Err.Error() }
func (e *RetryAfter) Unwrap() error { return e.Err }
func (e *Permanent) Error() string  { return e.Err.Error() }
func (e *Permanent) Unwrap() error  { return e.Err }

// Verdict determines whether and when a handler is called again.
type Verdict struct {
	// Final: it is not called again.
	Final bool
	// Delay is the wait before the next call.
	Delay time.Duration
	// Err is the error that counts, nil for a success.
	Err error
}

// Judge returns the verdict on a call that returned err. retries counts the calls before,
// and ran is the time since the first one. If the next call would exceed a limit, the
// handler fails now.
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

// exhausted returns an error if a handler has reached a limit.
func (h Handler) exhausted(retries int, ran time.Duration) error {
	switch {
	case h.Retries > 0 && retries >= h.Retries:
		return fmt.Errorf("gave up after %d calls", retries)
	case h.Timeout > 0 && ran >= h.Timeout:
		return fmt.Errorf("gave up, because the timeout of %v is over", h.Timeout)
	}
	return nil
}
