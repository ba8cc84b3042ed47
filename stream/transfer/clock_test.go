package transfer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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
	seen    time.Time // of the last type
}

func (s *ahead) Open(ctx context.Context, streams []sink.Stream) ([]sink.Stored, error) {
	s.seen = streams[0].Seen
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

// TestClockAhead stores at the time of the source's clock, if this machine's is ahead of it.
func TestClockAhead(t *testing.T) {
	for name, row := range map[string]struct {
		behind time.Duration // the source's clock
		other  bool          // its time counts
	}{"an hour": {time.Hour, true}, "a second": {time.Second, false}, "the source's is ahead": {-time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := errors.New("ended")
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				s := &ahead{transcript: transcript{states: map[string]stream.State{}}}
				pods := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "pods"}},
					Source: &table{revision: 1}}
				begin := time.Now()
				clock := func() time.Time { return time.Now().Add(-row.behind) }
				if err := transfer.New(s, []transfer.Resource{pods}, transfer.Options{Clock: clock,
					Cut: func(int, sink.Cut) { cancel(ended) }}).Run(ctx); err != ended {
					t.Errorf("it ends with %v", err)
				}
				if want := map[bool]time.Time{true: begin.Add(-row.behind), false: begin}[row.other]; len(s.written) == 0 ||
					!s.written[0].Equal(want) || !s.seen.Equal(want) {
					t.Errorf("written at %v, with a type that was seen at %v, want %v", s.written, s.seen, want)
				}
			})
		})
	}
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
