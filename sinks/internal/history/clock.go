package history

import "time"

// Clock knows how much time has passed since it was made, however the system's clock was set meanwhile.
type Clock struct{ began time.Time }

// NewClock returns a clock that begins with the time of the system's.
func NewClock() Clock { return Clock{time.Now()} }

// Bound returns t, or how late it is if t is later: the time at which the clock began, and what has passed since. By a
// time that the system's clock has jumped to, states would be older than they are.
func (c Clock) Bound(t time.Time) time.Time {
	if now := c.began.Add(time.Since(c.began)).UTC(); t.After(now) { // the difference is monotonic
		return now
	}
	return t
}
