package transfer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// ahead is a sink whose newest batch is in the future.
type ahead struct {
	transcript
	time    time.Time
	written []time.Time
}

func (s *ahead) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	stored, err := s.transcript.Open(ctx, streams)
	for i := range stored {
		stored[i].Time = s.time
	}
	return stored, err
}

func (s *ahead) Write(ctx context.Context, batch sink.Batch) error {
	s.written = append(s.written, batch.Time)
	return s.transcript.Write(ctx, batch)
}

// TestClockBehind stores with a clock that is behind the newest batch, at the time of that batch.
func TestClockBehind(t *testing.T) {
	ended := errors.New("ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s := &ahead{transcript: transcript{states: map[string]stream.State{}},
		time: time.Now().UTC().Truncate(time.Millisecond).AddDate(0, 0, 10)}
	pods := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "pods"}}, Source: &table{revision: 1}}
	starting := transfer.New(s, []transfer.Resource{pods}, transfer.Options{Cut: func(int, sink.Cut) { cancel(ended) }})
	if err := starting.Run(ctx); err != ended {
		t.Errorf("it ends with %v", err)
	}
	if len(s.written) == 0 || !s.written[0].Equal(s.time) || !starting.Status().Newest().Equal(s.time) {
		t.Errorf("written at %v, newest %v, want %v", s.written, starting.Status().Newest(), s.time)
	}
}
