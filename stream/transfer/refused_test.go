package transfer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// picky is a sink that has no room for the pieces of one resource, and stores all others. Its connection can be lost.
type picky struct {
	transcript
	refused string
	lost    bool
	waits   []time.Duration
}

func (s *picky) Write(ctx context.Context, batch sink.Batch) error {
	s.mu.Lock()
	for _, p := range batch.Pieces {
		if s.streams[p.Stream].ID.Resource == s.refused {
			s.mu.Unlock()
			return sink.Unavailablef("the object is too large")
		}
	}
	s.mu.Unlock()
	return s.transcript.Write(ctx, batch)
}

func (s *picky) Check(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lost {
		return nil
	}
	s.lost = false
	return sink.Unavailablef("the connection has ended")
}

func (s *picky) retrying(_ error, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, wait)
}

// TestRefusedPiece transfers two resources, and the sink refuses the object of one. What it stores of the other one in
// each session is no reason to try again at once. When it has stored the object, the next failure is the first again.
func TestRefusedPiece(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var resources []transfer.Resource
		for _, name := range []string{"large", "small"} {
			resources = append(resources, transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: name}},
				Source: &table{revision: 9, objects: []keepwatch.Object{thing{name, 9}}}})
		}
		s := &picky{transcript: transcript{states: map[string]stream.State{}}, refused: "large"}
		running := transfer.New(s, resources, transfer.Options{Retrying: s.retrying})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = running.Run(ctx) })
		set := func(change func(), pass time.Duration) {
			s.mu.Lock()
			change()
			s.mu.Unlock()
			time.Sleep(pass) // of the bubble's clock
			synctest.Wait()
		}
		set(func() {}, time.Hour)
		if s.opened > 1000 { // without a growing wait, 14,000
			t.Errorf("opened %d times in an hour", s.opened)
		}
		set(func() { s.refused = "" }, time.Minute)
		if got, want := s.written(), "large ADDED large, large SYNCED 9, small ADDED small, small SYNCED 9"; got != want {
			t.Errorf("written %q, want %q", got, want)
		}
		set(func() { s.lost = true }, time.Minute)
		if last := s.waits[len(s.waits)-1]; last > 500*time.Millisecond {
			t.Errorf("the wait after another failure is %v", last)
		}
		cancel()
		ended.Wait()
	})
}
