package follow

import (
	"sync/atomic"
	"time"
)

// latencyBounds are the upper bounds of client-go's histogram, in seconds.
var latencyBounds = [...]float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// latency is a histogram of the durations of the handlers' calls. A call costs a few atomic
// additions. The zero value is empty.
type latency struct {
	observed [len(latencyBounds) + 1]atomic.Uint64 // by the first bound that is not below the duration
	total    atomic.Int64                          // in nanoseconds
}

// observe counts a call that began at begin and has just ended.
func (l *latency) observe(begin time.Time) {
	duration := time.Since(begin)
	seconds, bucket := duration.Seconds(), 0
	for bucket < len(latencyBounds) && seconds > latencyBounds[bucket] {
		bucket++
	}
	l.observed[bucket].Add(1)
	l.total.Add(int64(duration))
}

// histogram returns the counts so far: the sum is in seconds, and the calls within each
// bound include those within a lower one.
func (l *latency) histogram() (count uint64, sum float64, within map[float64]uint64) {
	sum = time.Duration(l.total.Load()).Seconds()
	within = make(map[float64]uint64, len(latencyBounds))
	for i, bound := range latencyBounds {
		count += l.observed[i].Load()
		within[bound] = count
	}
	return count + l.observed[len(latencyBounds)].Load(), sum, within
}
