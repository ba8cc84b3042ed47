package nats

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestFailure checks which errors are worth another attempt: what a rolling restart of the servers causes always, what
// the address or a file of it says after the sink was open, and what the sink itself refuses never.
func TestFailure(t *testing.T) {
	for _, row := range []struct {
		err              error
		atStart, further bool
	}{
		{jetstream.ErrServerShutdown, true, true},
		{jetstream.ErrConsumerLeadershipChanged, true, true},
		{nats.ErrMaxAccountConnectionsExceeded, true, true},
		{&jetstream.APIError{Code: 503}, true, true},
		{sink.Unavailablef("a replica is behind"), true, true},
		{&jetstream.APIError{Code: 400}, false, true},
		{nats.ErrAuthorization, false, true},
		{nats.ErrSecureConnWanted, false, true},
		{&fs.PathError{Op: "open", Path: "user.creds", Err: fs.ErrNotExist}, false, true},
		{errors.New("nats: Authentication Timeout"), false, true},
		{errTakenOver, false, false},
		{fmt.Errorf("it ends at message 1: %w", errLost), false, false},
		{refusef("pods: %w", errors.New("it has the objects of others")), false, false},
	} {
		for opened, want := range map[bool]bool{false: row.atStart, true: row.further} {
			err := (&Sink{opened: opened}).failure(row.err)
			if got := errors.As(err, new(*sink.Unavailable)); got != want {
				t.Errorf("opened before: %v: %v is worth another attempt: %v", opened, err, got)
			}
		}
	}
}
