package health_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/informer/health"
)

// Healthy depends on how long the informer has not followed, not on the duration of its state: a
// server that accepts each watch and resets it is unhealthy, and one without changes is healthy.
func TestHealthy(t *testing.T) { synctest.Test(t, testHealthy) } // its messages have seconds

func testHealthy(t *testing.T) {
	s := health.Status{State: health.Stalled, Since: time.Now(), NotLiveSince: time.Now().Add(-time.Hour),
		LastFailure: errors.New("reset")}
	if err := s.Healthy(time.Minute); err == nil || err.Error() != "STALLED, and not following for 1h0m0s: reset" {
		t.Errorf("not following for an hour: %v", err)
	}
	if err := s.Healthy(2 * time.Hour); err != nil {
		t.Errorf("within a longer grace: %v", err)
	}
	s.State, s.LastConfirmed = health.Stale, time.Now().Add(-3*time.Minute)
	if err := s.Healthy(time.Minute); err == nil ||
		err.Error() != "STALE (current 3m0s ago), and not following for 1h0m0s: reset" {
		t.Errorf("stale for an hour: %v", err)
	}
	s = health.Status{State: health.Quiet, Since: time.Now().Add(-time.Hour), LastFailure: errors.New("reset")}
	if err := s.Healthy(time.Minute); err != nil {
		t.Errorf("quiet for an hour: %v", err)
	}
}
