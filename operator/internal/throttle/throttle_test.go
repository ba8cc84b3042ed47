package throttle

import (
	"slices"
	"testing"
	"time"
)

func TestDelays(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var throttle Throttle
	if throttle.Wait(now) != 0 {
		t.Error("held before anything went wrong")
	}
	var waits []int
	for range 17 {
		throttle = throttle.Failed(now)
		waits = append(waits, int(throttle.Wait(now)/time.Second))
		if before := throttle.Until().Add(-1); throttle.Wait(before) != 1 || throttle.Wait(throttle.Until()) != 0 {
			t.Errorf("until %v", throttle.Until())
		}
		now = throttle.Until()
	}
	want := []int{1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 610, 610}
	if !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
	if after := (Throttle{}).Failed(now); after.Wait(now) != time.Second {
		t.Error("a success does not begin again at the start")
	}
	if asked := (Throttle{}).FailedRetryAfter(now, time.Minute); asked.Wait(now) != time.Minute {
		t.Errorf("waits %v, asked for a minute", asked.Wait(now))
	}
	if asked := throttle.FailedRetryAfter(now, 24*time.Hour); asked.Wait(now) != 610*time.Second {
		t.Errorf("waits %v, asked for a day", asked.Wait(now))
	}
	if asked := throttle.FailedRetryAfter(now, time.Second); asked.Wait(now) != 610*time.Second {
		t.Errorf("waits %v, asked for less than its own", asked.Wait(now))
	}
}
