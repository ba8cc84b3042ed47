// Package throttle holds back what goes wrong for reasons that nobody has foreseen.
package throttle

import (
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
)

// waits are the waits after the first failure in a row, the second, and so on: kopf's.
var waits = backoff.Fibonacci{First: time.Second, Max: 610 * time.Second}

// Throttle says how long to leave something alone. The zero value lets it go on at
// once. It is a value: nothing but its owner changes it.
type Throttle struct {
	failures int
	until    time.Time
}

// Failed is the throttle after another failure.
func (t Throttle) Failed(now time.Time) Throttle {
	return Throttle{failures: t.failures + 1, until: now.Add(waits.Wait(t.failures))}
}

// Waiting is the throttle after a failure that asks itself for a wait; the longer
// of the two counts.
func (t Throttle) FailedRetryAfter(now time.Time, retryAfter time.Duration) Throttle {
	t = t.Failed(now)
	if until := now.Add(retryAfter); until.After(t.until) {
		t.until = until
	}
	return t
}

// Until is when it may go on; the zero time when nothing holds it.
func (t Throttle) Until() time.Time { return t.until }

// Wait is how long it must not go on yet.
func (t Throttle) Wait(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }
