package readpath

import "sync/atomic"

// clock bounds the bytes of encodings by the CLOCK algorithm. The encodings form a circle, and a hand
// moves along it: it drops those that were not used since it last passed them. To add n bytes it passes
// at most n bytes, so that an addition never walks over all. If that makes too little room, the new
// encoding is not cached: while as many bytes as the clock contains were offered, the others were used.
// Budget.mu is held to call its methods.
type clock struct {
	limit  int64
	bytes  atomic.Int64
	hand   *cachedEncoding // the next to pass; nil in an empty circle
	sweep  uint32          // the number of the sweep that runs or is next
	counts *counts
}

// add inserts an encoding where the hand comes last. It reports whether there was room.
func (c *clock) add(e *cachedEncoding) bool {
	if !c.makeRoom(e.size) {
		return false
	}
	e.clock, e.sweep = c, c.sweep
	if c.hand == nil {
		c.hand, e.before, e.after = e, e, e
	} else {
		e.before, e.after = c.hand.before, c.hand
		e.before.after, e.after.before = e, e
	}
	c.count(e.size)
	e.owner.link(e)
	return true
}

// makeRoom moves the hand until size bytes are free, past at most size bytes.
func (c *clock) makeRoom(size int64) bool {
	for passed := int64(0); c.bytes.Load()+size > c.limit; {
		if c.hand == nil || passed >= size || size > c.limit {
			c.counts.refused.Inc()
			return false
		}
		e := c.hand
		passed += e.size
		if e.used.Swap(false) {
			c.hand = e.after
			continue
		}
		c.remove(e)
		c.counts.evicted.Inc()
	}
	return true
}

// remove drops an encoding of this clock. A nil clock is that of an encoding that is dropped.
func (c *clock) remove(e *cachedEncoding) {
	if c == nil {
		return
	}
	if e.after == e {
		c.hand = nil
	} else {
		if c.hand == e {
			c.hand = e.after
		}
		e.before.after, e.after.before = e.after, e.before
	}
	e.clock, e.before, e.after = nil, nil, nil
	c.count(-e.size)
	e.owner.unlink(e)
}

func (c *clock) count(bytes int64) {
	c.bytes.Add(bytes)
	c.counts.cachedBytes.Add(float64(bytes))
}
