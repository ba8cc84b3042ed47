package transfer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// ahead is a sink whose newest batch has a time.
type ahead struct {
	transcript
	time time.Time
}

func (s *ahead) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	stored, err := s.transcript.Open(ctx, streams)
	for i := range stored {
		stored[i].Time = s.time
	}
	return stored, err
}

// TestClockAtStart ends a transfer at its start if the sink's newest batch is in the future, unless that may be the
// clock of another machine.
func TestClockAtStart(t *testing.T) {
	ended := errors.New("ended")
	for span, fails := range map[time.Duration]bool{-time.Hour: false, time.Hour: false, 48 * time.Hour: true} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &ahead{transcript{states: map[string]stream.State{}}, time.Now().Add(span)}
		pods := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "pods"}}, Source: &table{revision: 1}}
		starting := transfer.New(s, []transfer.Resource{pods}, transfer.Options{Cut: func(int, sink.Cut) { cancel(ended) }})
		err := starting.Run(ctx)
		if fails && (err == nil || !strings.Contains(err.Error(), "set the clock")) || !fails && err != ended {
			t.Errorf("a batch in %v: %v", span, err)
		}
		cancel(nil)
	}
}
