package backoff

import "time"

// Fibonacci is a schedule of waits that grow as the Fibonacci numbers (1, 1, 2, 3, 5, …) times
// First and stay at Max. It is the growth of kopf's error delays. First must be positive.
type Fibonacci struct{ First, Max time.Duration }

// Wait returns the wait after attempt, which counts from 0. It does not overflow: neither wait
// nor next exceeds Max.
func (f Fibonacci) Wait(attempt int) time.Duration {
	wait := min(f.First, f.Max)
	for next := wait; attempt > 0 && wait < f.Max; attempt-- {
		wait, next = next, wait+min(next, f.Max-wait)
	}
	return wait
}
