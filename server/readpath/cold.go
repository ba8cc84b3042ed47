package readpath

import "time"

const (
	// coldAfter is how often encodings are dropped that were not used since the last time: a list that nobody repeats
	// leaves the memory after five to fifteen minutes.
	coldAfter = 5 * time.Minute
	// sweepBatch is how many encodings a sweep passes with the lock of the budget.
	sweepBatch = 1000
)

// scheduleSweep starts the timer of sweep, unless it runs. There is none while nothing is cached. b.mu is locked.
func (b *Budget) scheduleSweep() {
	if b.sweeping == nil {
		b.sweeping = time.AfterFunc(b.coldAfter, b.sweep)
	}
}

// sweep drops the cold encodings of both clocks.
func (b *Budget) sweep() {
	for _, c := range []*clock{&b.itemEncodings, &b.eventEncodings} {
		for done := false; !done; {
			b.mu.Lock()
			done = c.sweepSome(sweepBatch)
			b.mu.Unlock()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweeping = nil
	if b.Bytes() > 0 {
		b.scheduleSweep()
	}
}

// sweepSome moves the hand past at most n encodings, once around in each sweep, and drops those that were not used
// since the last sweep, nor added since then. It reports whether the sweep is done.
func (c *clock) sweepSome(n int) (done bool) {
	for range n {
		e := c.hand
		if e == nil || e.sweep >= c.sweep {
			c.sweep++
			return true
		}
		if !e.used.Swap(false) {
			c.remove(e)
			c.counts.cold.Inc()
			continue
		}
		e.sweep, c.hand = c.sweep, e.after
	}
	return false
}
