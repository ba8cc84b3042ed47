package transfer

import "time"

// Clock returns the time of a source's clock, zero as long as it is not known. It is called concurrently.
type Clock func() time.Time

// MaxApart is how far the clocks of two machines may be apart.
const MaxApart = time.Minute

// Now returns the time of what is written now: this machine's, or the source's if this clock is ahead of it by more
// than [MaxApart]. By a time that is ahead, a sink would delete what is not old, and a moment between it and the next
// right one would have the states from before. Without a clock it is this machine's.
func (c Clock) Now() time.Time {
	now := time.Now()
	if c != nil {
		if at := c(); !at.IsZero() && now.Sub(at) > MaxApart {
			now = at
		}
	}
	return now.UTC().Truncate(time.Millisecond)
}
