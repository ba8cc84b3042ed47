package transfer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// forgetting is a sink whose server is replaced by one without commits. Only a check shows it while nothing is written.
type forgetting struct {
	transcript
	replaced bool
}

func (s *forgetting) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.replaced {
		return nil
	}
	s.replaced, s.states = false, map[string]stream.State{}
	return sink.Unavailablef("the connection has ended")
}

// TestCheck loses what was stored while the source rests: it is delivered once more.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &forgetting{transcript: transcript{states: map[string]stream.State{}}}
		resting := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "a"}}, Source: &table{revision: 10}}
		tr := transfer.New(s, []transfer.Resource{resting}, transfer.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		synctest.Wait()
		if got := s.written(); got != "a SYNCED 10" {
			t.Errorf("written %q", got)
		}
		s.mu.Lock()
		s.replaced = true
		s.mu.Unlock()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		if got := s.written(); got != "a SYNCED 10" {
			t.Errorf("written %q after the loss", got)
		}
		if n := tr.Status().Retries; n != 1 {
			t.Errorf("%d retries", n)
		}
		cancel()
		<-ended
	})
}
