package transfer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestStandbyIsNoRetry checks that a process which waits for another one counts no failures.
func TestStandbyIsNoRetry(t *testing.T) {
	reported := 0
	transfer := New(nil, nil, Options{Retrying: func(error, time.Duration) { reported++ }})
	transfer.Retrying(fmt.Errorf("postgres: %w", &sink.Unavailable{Err: errors.New("this one is its standby"),
		Standby: true}), 0)
	if !transfer.Status().Standby {
		t.Error("it is no standby")
	}
	transfer.Retrying(sink.Unavailablef("the connection was lost"), 0)
	if s := transfer.Status(); s.Retries != 1 || reported != 2 || s.Standby {
		t.Errorf("%d retries were counted and %d reported, want 1 and 2; standby: %v", s.Retries, reported, s.Standby)
	}
}
