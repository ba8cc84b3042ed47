package simulation

import (
	"sync"
	"time"
)

// Clock is the time of a simulation: real time, plus the sum of what was given to Advance. The zero value is real time. It
// is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
	moved chan struct{} // closed by the next Advance; nil if nobody waits
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// Advance moves the time forward at once.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// Fork returns a clock with the same time, which is advanced independently.
func (c *Clock) Fork() *Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Clock{ahead: c.ahead}
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
