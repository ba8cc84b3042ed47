package transfer_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
)

// TestStaleAlone checks that nothing waits for the revision of a resource that is alone on its line: its watches need
// not end soon, also where the server sends no bookmarks.
func TestStaleAlone(t *testing.T) {
	ids := []stream.Identity{{Resource: "pods"}, {Resource: "nodes"}}
	for line, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var resources []transfer.Resource
			for i, id := range ids {
				resources = append(resources, transfer.Resource{Stream: sink.Stream{ID: id, Line: i * line},
					Source: &table{revision: 1}})
			}
			running := transfer.New(&transcript{states: map[string]stream.State{}}, resources, transfer.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			if !running.Stale(ids[0]) {
				t.Error("a resource without a cut is not stale")
			}
			var ended sync.WaitGroup
			ended.Go(func() { _ = running.Run(ctx) })
			synctest.Wait()
			if running.Stale(ids[0]) {
				t.Error("it is stale after its list")
			}
			time.Sleep(3 * time.Minute)
			if got := running.Stale(ids[0]); got != shared {
				t.Errorf("shared: %v, stale: %v", shared, got)
			}
			cancel()
			ended.Wait()
		})
	}
}
