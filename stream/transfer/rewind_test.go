package transfer_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// flapping is a source behind a balancer over two clusters: each watch soon shows that the other one is read.
type flapping struct {
	table
	lists *atomic.Int64
}

func (s *flapping) List(ctx context.Context, r keepwatch.ListRequest) (keepwatch.Page, error) {
	s.lists.Add(1)
	return s.table.List(ctx, r)
}

func (s *flapping) Watch(ctx context.Context, _ keepwatch.Revision) (keepwatch.Watch, error) {
	select {
	case <-time.After(time.Millisecond):
		return nil, keepwatch.Failed(keepwatch.Rewound, "the server was restored from a backup")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestRewindsWithoutEnd rewinds the streams of a line again and again: the lists become rare.
func TestRewindsWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		var resources []transfer.Resource
		for _, name := range []string{"pods", "nodes"} {
			resources = append(resources, transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: name}},
				Source: &flapping{table{revision: 9}, &lists}})
		}
		running := transfer.New(&transcript{states: map[string]stream.State{}}, resources, transfer.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = running.Run(ctx) })
		time.Sleep(time.Hour)
		if n := lists.Load(); n > 1000 { // without a wait, 40,000
			t.Errorf("%d lists in an hour", n)
		}
		cancel()
		ended.Wait()
	})
}
