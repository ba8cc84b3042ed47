package health_test

import (
	"errors"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/informer/health"
)

// Health looks at how long nothing is followed, not at how long the state of the moment
// lasts: a server that takes each watch and resets it makes no progress, one where
// nothing happens does.
func TestHealthIsProgress(t *testing.T) {
	s := health.Status{State: health.Stalled, Since: time.Now(), Lost: time.Now().Add(-time.Hour), LastFailure: errors.New("reset")}
	if err := s.Healthy(time.Minute); err == nil || err.Error() != "STALLED, and not following for 1h0m0s: reset" {
		t.Errorf("nothing followed for an hour: %v", err)
	}
	if err := s.Healthy(2 * time.Hour); err != nil {
		t.Errorf("with more patience: %v", err)
	}
	s = health.Status{State: health.Quiet, Since: time.Now().Add(-time.Hour), LastFailure: errors.New("reset")}
	if err := s.Healthy(time.Minute); err != nil {
		t.Errorf("quiet for an hour: %v", err)
	}
}
