package backoff

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type schedule interface {
	Wait(attempt int) time.Duration
}

func waits(s schedule, n int) []time.Duration {
	w := make([]time.Duration, n)
	for attempt := range w {
		w[attempt] = s.Wait(attempt)
	}
	return w
}

func TestExponential(t *testing.T) {
	for _, c := range []struct {
		schedule Exponential
		want     []time.Duration
	}{
		{Exponential{time.Second, time.Minute}, []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 32e9, 60e9, 60e9}},
		{Exponential{800 * time.Millisecond, 3200 * time.Millisecond}, []time.Duration{8e8, 16e8, 32e8, 32e8}},
		{Exponential{time.Minute, time.Second}, []time.Duration{1e9, 1e9}},
		{Exponential{0, time.Second}, []time.Duration{0, 0}},
	} {
		if got := waits(c.schedule, len(c.want)); !slices.Equal(got, c.want) {
			t.Errorf("%+v waits %v, want %v", c.schedule, got, c.want)
		}
	}
	// The rate limiter of client-go's workqueues, which has the same bounds.
	queue := Exponential{5 * time.Millisecond, 1000 * time.Second}
	for attempt := range 40 {
		want := min(5*time.Millisecond*time.Duration(math.Pow(2, float64(attempt))), queue.Max)
		if got := queue.Wait(attempt); got != want {
			t.Errorf("attempt %d: waits %v, want %v", attempt, got, want)
		}
	}
}

func TestFibonacci(t *testing.T) {
	kopf := []time.Duration{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 610, 610}
	if got := waits(Fibonacci{1, 610}, len(kopf)); !slices.Equal(got, kopf) {
		t.Errorf("waits %v, want %v", got, kopf)
	}
	if got, want := waits(Fibonacci{2, 7}, 6), []time.Duration{2, 2, 4, 6, 7, 7}; !slices.Equal(got, want) {
		t.Errorf("waits %v, want %v", got, want)
	}
}

// TestBounds checks for any schedule and attempt that a wait is between First and Max, and not
// shorter than the wait before it.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "first"))
		longest := time.Duration(rapid.Int64Range(int64(first), math.MaxInt64).Draw(t, "max"))
		attempt := rapid.OneOf(rapid.IntRange(0, 200), rapid.IntRange(0, math.MaxInt-1)).Draw(t, "attempt")
		for _, s := range []schedule{Exponential{first, longest}, Fibonacci{first, longest}} {
			this, next := s.Wait(attempt), s.Wait(attempt+1)
			if this < first || this > longest || next < this || next > longest {
				t.Errorf("%T of %d to %d: attempt %d waits %d, the next %d", s, first, longest, attempt, this, next)
			}
		}
	})
}

func TestFullJitter(t *testing.T) {
	lowest := func(int64) int64 { return 0 }
	highest := func(n int64) int64 { return n - 1 }
	if got := FullJitter(time.Second, lowest); got != 1 {
		t.Errorf("the shortest wait is %v, want 1ns", got)
	}
	if got := FullJitter(time.Second, highest); got != time.Second {
		t.Errorf("the longest wait is %v, want 1s", got)
	}
	if got := FullJitter(0, rand.Int64N); got != 0 {
		t.Errorf("a limit of zero waits %v", got)
	}
}
