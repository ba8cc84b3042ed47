package backoff

import "time"

// FullJitter returns a random wait above zero, at most limit; zero if limit is. int64N draws
// a number below its argument, as math/rand/v2's Int64N does.
func FullJitter(limit time.Duration, int64N func(int64) int64) time.Duration {
	if limit <= 0 {
		return 0
	}
	return 1 + time.Duration(int64N(int64(limit)))
}
