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
	transfer.Retrying(fmt.Errorf("postgres: %w", &sink.Unavailable{Err: errors.New("this one is its standby"), Standby: true}), 0)
	transfer.Retrying(sink.Unavailablef("the connection was lost"), 0)
	if n := transfer.Status().Retries; n != 1 || reported != 2 {
		t.Errorf("%d retries were counted and %d reported, want 1 and 2", n, reported)
	}
}
