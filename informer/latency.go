package informer

import (
	"sync/atomic"
	"time"
)

// latencyBounds are the upper bounds of client-go's histogram, in seconds.
var latencyBounds = [...]float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// latency counts calls of handlers by how long they took. Counting is a few atomic
// additions: handlers do it for each change. The zero value has counted none.
type latency struct {
	took  [len(latencyBounds) + 1]atomic.Uint64 // by the first bound that is not below
	total atomic.Int64                          // in nanoseconds
}

// since counts a call that began then and is over.
func (l *latency) since(begun time.Time) {
	took := time.Since(begun)
	seconds, bucket := took.Seconds(), 0
	for bucket < len(latencyBounds) && seconds > latencyBounds[bucket] {
		bucket++
	}
	l.took[bucket].Add(1)
	l.total.Add(int64(took))
}

// histogram is what was counted so far: the sum is in seconds, and the calls within
// each bound include those within a lower one.
func (l *latency) histogram() (count uint64, sum float64, within map[float64]uint64) {
	sum = time.Duration(l.total.Load()).Seconds()
	within = make(map[float64]uint64, len(latencyBounds))
	for i, bound := range latencyBounds {
		count += l.took[i].Load()
		within[bound] = count
	}
	return count + l.took[len(latencyBounds)].Load(), sum, within
}
