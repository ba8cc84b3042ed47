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

// restored is a source that is down once, and then has the state of a backup. As kube-apiserver, it accepts each watch,
// and sends nothing to those from a revision that it does not have (kubernetes #107457).
type restored struct {
	table
	watches int
}

func (s *restored) Watch(ctx context.Context, from keepwatch.Revision) (keepwatch.Watch, error) {
	watch := &quiet{ctx: ctx, batch: keepwatch.Batch{From: from, To: from}, sent: from > s.revision}
	switch s.watches++; s.watches {
	case 1:
	case 2:
		return nil, keepwatch.Failed(keepwatch.Unreachable, "the connection is refused")
	default:
		return watch, nil
	}
	s.revision = 5 // from now on
	until, cancel := context.WithTimeout(ctx, time.Minute)
	context.AfterFunc(until, cancel)
	watch.ctx = until
	return watch, nil
}

// TestRestoredWhileDown stores the rewind of a source that was down, although its watches send nothing: long before
// they are idle.
func TestRestoredWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		into := &transcript{states: map[string]stream.State{}}
		resource := transfer.Resource{Stream: sink.Stream{ID: stream.Identity{Resource: "things"}},
			Source: &restored{table: table{revision: 9}}}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = transfer.New(into, []transfer.Resource{resource}, transfer.Options{}).Run(ctx) })
		time.Sleep(2 * time.Minute) // of the bubble's clock
		synctest.Wait()
		cancel()
		ended.Wait()
		if got, want := into.written(), "things SYNCED 9, things GAP 5 rewind, things SYNCED 5"; got != want {
			t.Errorf("written %q, want %q", got, want)
		}
	})
}
