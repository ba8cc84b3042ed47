package sinktest

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// flaky is a sink whose commits fail: before they have taken place, or after.
type flaky struct {
	sink.Sink
	committed func(sink.Batch) // called after each commit, also if it is then reported as failed

	mu     sync.Mutex
	random *rand.Rand
	every  int // one commit in so many fails; 0: none
	failed int
}

func (f *flaky) Write(ctx context.Context, batch sink.Batch) error {
	f.mu.Lock()
	fails, before := f.every > 0 && f.random.IntN(f.every) == 0, f.random.IntN(2) == 0
	if fails {
		f.failed++
	}
	f.mu.Unlock()
	if fails && before {
		return sink.Unavailablef("the connection was lost before the commit")
	}
	if err := f.Sink.Write(ctx, batch); err != nil {
		return err
	}
	f.committed(batch)
	if fails {
		return sink.Unavailablef("the connection was lost after the commit")
	}
	return nil
}

// Check checks the sink, if it can be. See [sink.Checker].
func (f *flaky) Check(ctx context.Context) error {
	if c, ok := f.Sink.(sink.Checker); ok {
		return c.Check(ctx)
	}
	return nil
}

// calm ends the failures.
func (f *flaky) calm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.every = 0
}
