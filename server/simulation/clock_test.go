package simulation

import (
	"math"
	"sync"
	"testing"
	"time"
)

// ahead returns how far a clock is ahead of real time.
func ahead(c *Clock) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// Durations that are negative, or too long together, move nothing; forks move on their own.
func TestClock(t *testing.T) {
	var c Clock
	advance := func(c *Clock, d time.Duration, want time.Duration, valid bool) {
		t.Helper()
		before := time.Now()
		now, err := c.Advance(d)
		if (err == nil) != valid || ahead(c) != want {
			t.Errorf("advance by %v: %v; %v ahead, want %v", d, err, ahead(c), want)
		}
		if valid && (now.Before(before.Add(want)) || now.After(c.Now())) {
			t.Errorf("advance by %v: returned %v at %v", d, now, c.Now())
		}
	}
	advance(&c, time.Hour, time.Hour, true)
	advance(&c, 0, time.Hour, true)
	advance(&c, -1, time.Hour, false)
	advance(&c, math.MinInt64, time.Hour, false)
	advance(&c, math.MaxInt64, time.Hour, false)
	fork := c.Fork()
	advance(&c, math.MaxInt64-time.Hour, math.MaxInt64, true)
	advance(&c, 1, math.MaxInt64, false)
	advance(fork, time.Minute, time.Hour+time.Minute, true)
}

// An advance wakes the loops, a refused one does not.
func TestClockWakes(t *testing.T) {
	var c Clock
	advanced := c.advanced()
	if _, err := c.Advance(-1); err == nil {
		t.Error("the time was moved back")
	}
	select {
	case <-advanced:
		t.Error("a refused advance has woken the loops")
	default:
	}
	if _, err := c.Advance(1); err != nil {
		t.Error(err)
	}
	<-advanced
}

// Concurrent advances add up.
func TestConcurrentAdvances(t *testing.T) {
	var c Clock
	var running sync.WaitGroup
	for range 100 {
		running.Go(func() {
			if _, err := c.Advance(time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if got := ahead(&c); got != 100*time.Second {
		t.Errorf("%v ahead", got)
	}
}
