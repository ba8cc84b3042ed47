package transfer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// closing is a sink that fails when it is closed.
type closing struct {
	transcript
	err error
}

func (s *closing) Close() error { return s.err }

// TestCloseFails ends a transfer on request. A sink that cannot be closed is a failure, unless it is just unavailable.
func TestCloseFails(t *testing.T) {
	ended, lost := errors.New("ended"), errors.New("the state was deleted")
	for _, tt := range []struct{ closed, want error }{
		{nil, ended},
		{lost, lost},
		{&sink.Unavailable{Err: lost}, ended},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &closing{transcript{states: map[string]stream.State{}}, tt.closed}
		pods := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "pods"}}, Source: &table{revision: 1}}
		ending := transfer.New(s, []transfer.Resource{pods}, transfer.Options{Cut: func(int, sink.Cut) { cancel(ended) }})
		if err := ending.Run(ctx); err != tt.want {
			t.Errorf("Close returns %v, and Run %v, want %v", tt.closed, err, tt.want)
		}
	}
}

// failing is a sink that ends the transfer while it writes, and fails.
type failing struct {
	transcript
	end func()
	err error
}

func (s *failing) Write(context.Context, sink.Batch) error {
	s.end()
	return s.err
}

// TestWriteFailsAtEnd fails a write while a transfer ends on request. What the sink has not stored is a failure, unless
// it is the consequence of the end.
func TestWriteFailsAtEnd(t *testing.T) {
	ended, lost := errors.New("ended"), errors.New("the output cannot be written")
	for _, tt := range []struct{ failed, want error }{
		{nil, ended},
		{lost, lost},
		{ended, ended},
		{context.Canceled, ended},
		{&sink.Unavailable{Err: lost}, ended},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &failing{transcript{states: map[string]stream.State{}}, func() { cancel(ended) }, tt.failed}
		pods := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "pods"}}, Source: &table{revision: 1}}
		ending := transfer.New(s, []transfer.Resource{pods}, transfer.Options{})
		if err := ending.Run(ctx); !errors.Is(err, tt.want) {
			t.Errorf("Write returns %v, and Run %v, want %v", tt.failed, err, tt.want)
		}
	}
}
