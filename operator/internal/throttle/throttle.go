// Package throttle holds back what goes wrong for reasons that nobody has foreseen.
package throttle

import "time"

// delays are the waits after the first failure in a row, the second, and so on; the
// last one stays.
var delays = [...]time.Duration{
	1 * time.Second, 1 * time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second,
	8 * time.Second, 13 * time.Second, 21 * time.Second, 34 * time.Second, 55 * time.Second,
	89 * time.Second, 144 * time.Second, 233 * time.Second, 377 * time.Second, 610 * time.Second,
}

// Throttle says how long to leave something alone. The zero value lets it go on at
// once. It is a value: nothing but its owner changes it.
type Throttle struct {
	failures int
	until    time.Time
}

// Failed is the throttle after another failure.
func (t Throttle) Failed(now time.Time) Throttle {
	wait := delays[min(t.failures, len(delays)-1)]
	return Throttle{failures: t.failures + 1, until: now.Add(wait)}
}

// Waiting is the throttle after a failure that asks itself for a wait; the longer
// of the two counts.
func (t Throttle) Waiting(now time.Time, asked time.Duration) Throttle {
	t = t.Failed(now)
	if until := now.Add(asked); until.After(t.until) {
		t.until = until
	}
	return t
}

// Until is when it may go on; the zero time when nothing holds it.
func (t Throttle) Until() time.Time { return t.until }

// Wait is how long it must not go on yet.
func (t Throttle) Wait(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }
