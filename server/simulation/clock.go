package simulation

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Clock is the time of a simulation: real time, plus the sum of what was given to Advance. The zero value is real time.
// It is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration // never negative
	moved chan struct{} // closed by the next Advance; nil if nobody waits
	skips bool          // see SkipDelays
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// Advance moves the time forward at once, and returns it. If d is negative, or the time would be further ahead of real
// time than a Duration can say, 292 years, it returns an error and moves nothing.
func (c *Clock) Advance(d time.Duration) (time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case d < 0:
		return time.Time{}, errors.New("a simulation's time cannot be moved back")
	case d > math.MaxInt64-c.ahead:
		return time.Time{}, fmt.Errorf("a simulation's time can be at most 292 years ahead of real time, and it is %v ahead",
			c.ahead)
	}
	c.ahead += d
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
	return time.Now().Add(c.ahead), nil
}

// SkipDelays makes pods ready as soon as they run, without the initial delays of their probes.
func (c *Clock) SkipDelays() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skips = true
}

// skipsDelays reports whether SkipDelays was called.
func (c *Clock) skipsDelays() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skips
}

// Fork returns a clock with the same time, which is advanced independently.
func (c *Clock) Fork() *Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Clock{ahead: c.ahead, skips: c.skips}
}

// advanced returns a channel that the next Advance closes.
func (c *Clock) advanced() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.moved == nil {
		c.moved = make(chan struct{})
	}
	return c.moved
}
