package backoff

import "time"

// Exponential is a schedule of waits that double from First and stay at Max.
type Exponential struct{ First, Max time.Duration }

// Wait returns the wait after attempt, which counts from 0: First·2^attempt, at most Max.
// It does not overflow: it compares before it shifts, and a right shift by any count is defined.
func (e Exponential) Wait(attempt int) time.Duration {
	if e.First > e.Max>>attempt {
		return e.Max
	}
	return e.First << attempt
}
