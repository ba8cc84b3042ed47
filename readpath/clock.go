package readpath

import "sync/atomic"

// clock bounds the bytes of encodings. They stand in a circle, and a hand goes around: it drops
// those that were not used since it passed them last. For an encoding of n bytes it passes n
// bytes, so that nobody who adds one waits for a walk over all. If that makes too little room, the
// new one is not cached: the others were used while as many bytes as the clock holds were offered.
// Budget.mu is held to call its methods.
type clock struct {
	most   int64
	bytes  atomic.Int64
	hand   *encoding // passed next; nil in an empty circle
	counts *counts
}

// add puts an encoding into the circle, where the hand comes last. It reports whether there was
// room.
func (c *clock) add(one *encoding) bool {
	if !c.makeRoom(one.size) {
		return false
	}
	one.clock = c
	if c.hand == nil {
		c.hand, one.before, one.after = one, one, one
	} else {
		one.before, one.after = c.hand.before, c.hand
		one.before.after, one.after.before = one, one
	}
	c.count(one.size)
	one.of.link(one)
	return true
}

// makeRoom moves the hand until there is room, but past no more bytes than that.
func (c *clock) makeRoom(size int64) bool {
	for passed := int64(0); c.bytes.Load()+size > c.most; {
		if c.hand == nil || passed >= size || size > c.most {
			c.counts.refused.Inc()
			return false
		}
		at := c.hand
		passed += at.size
		if at.used.Swap(false) {
			c.hand = at.after
			continue
		}
		c.remove(at)
		c.counts.evicted.Inc()
	}
	return true
}

// remove drops an encoding, of this clock, unless that was done before.
func (c *clock) remove(one *encoding) {
	if c == nil {
		return
	}
	if one.after == one {
		c.hand = nil
	} else {
		if c.hand == one {
			c.hand = one.after
		}
		one.before.after, one.after.before = one.after, one.before
	}
	one.clock, one.before, one.after = nil, nil, nil
	c.count(-one.size)
	one.of.unlink(one)
}

func (c *clock) count(bytes int64) {
	c.bytes.Add(bytes)
	c.counts.cached.Add(float64(bytes))
}
