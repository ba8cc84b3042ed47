package watchcache

import (
	"context"
	"sync/atomic"
)

// pace is how far the watch of a cache has come, for a source that waits for it. A nil pace is of a cache whose source
// does not.
type pace struct {
	newer atomic.Pointer[<-chan struct{}] // the watch had sent everything until this is closed; nil before that
	moved chan struct{}                   // has an element if newer was set since the source has looked
}

func newPace() *pace { return &pace{moved: make(chan struct{}, 1)} }

// waits says that the watch has sent everything, and waits until newer is closed.
func (p *pace) waits(newer <-chan struct{}) {
	if p == nil {
		return
	}
	p.newer.Store(&newer)
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// AwaitWatch waits until a watch has sent everything that the cache has, so that a source which can wait is read as
// fast as the watch's client reads: it calls AwaitWatch before it returns a batch or an error of its Watch. The cache,
// which is one of At, has one watch then, and may be one without history: no watch misses a change. It returns ctx's
// cause if ctx ends before.
func (c *Cache) AwaitWatch(ctx context.Context) error {
	for {
		// What the source returned before is applied, and has closed the channel of a watch that it concerns.
		if newer := c.pace.newer.Load(); newer != nil && !isClosed(*newer) {
			return nil
		}
		select {
		case <-c.pace.moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
