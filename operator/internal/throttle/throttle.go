// Package throttle delays objects whose processing fails outside of their handlers.
package throttle

import (
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// waits are the waits after successive failures, kopf's.
var waits = backoff.Fibonacci{First: time.Second, Max: 610 * time.Second}

// Throttle is a wait that grows with each failure. The zero value does not wait. It is an
// immutable value.
type Throttle struct {
	failures int
	until    time.Time
}

// Failed returns the throttle after another failure.
func (t Throttle) Failed(now time.Time) Throttle {
	return Throttle{failures: t.failures + 1, until: now.Add(waits.Wait(t.failures))}
}

// FailedRetryAfter returns the throttle after another failure with a Retry-After. The longer
// wait counts, but an object never waits longer than 610 s, whatever a server or a gateway before it asks for.
func (t Throttle) FailedRetryAfter(now time.Time, retryAfter time.Duration) Throttle {
	t = t.Failed(now)
	if until := now.Add(min(retryAfter, waits.Max)); until.After(t.until) {
		t.until = until
	}
	return t
}

// Until returns the end of the wait; the zero time if there was no failure.
func (t Throttle) Until() time.Time { return t.until }

// Wait returns the rest of the wait.
func (t Throttle) Wait(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }
