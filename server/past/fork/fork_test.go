package fork

import (
	"testing"
	"time"
)

// An Event of a fork stays for what its time to live has left at the moment, and for all of it if that is over
// already.
func TestRemaining(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		0: time.Hour, 20 * time.Minute: 40 * time.Minute, time.Hour - time.Second: time.Second,
		time.Hour: time.Hour, 3 * time.Hour: time.Hour, -time.Minute: time.Hour,
	} {
		if got := remaining(time.Hour, age); got != want {
			t.Errorf("of age %v: %v, want %v", age, got, want)
		}
	}
}
