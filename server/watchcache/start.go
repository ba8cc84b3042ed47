package watchcache

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/pause"
)

const (
	// watchStartWait is how long a watch waits for the start, whose end is near: a refused
	// client asks again a second later, together with all others. A list waits for
	// revisionWait, since it occupies one of the seats of requests meanwhile.
	watchStartWait = 20 * time.Second
	// warmAfter is the time from the start to the decoding of what was read until then.
	// warmIdleRatio is how much longer the decoding pauses than it works.
	warmAfter     = 5 * time.Second
	warmIdleRatio = 3
)

// catchUp waits until the cache has reached the revision that the source had when Run began.
// Before that it may show a state from before the last run.
func (c *Cache) catchUp(ctx context.Context, begun time.Time) {
	for ctx.Err() == nil {
		newest, err := c.source.Newest(ctx)
		if err == nil {
			err = c.waitForRevision(ctx, newest, forever)
		}
		if err == nil {
			c.meter.initialized(begun)
			close(c.ready)
			return
		}
		_ = pause.For(ctx, newestRetry)
	}
}

// warm decodes the objects that the cache read while it started, so that their first readers
// need not wait, and then adds the indexes, which need decoded objects. Before that, lists
// look at all objects. It begins after warmAfter, because all clients reconnect at the start,
// and uses a quarter of a processor. It reports whether ctx allowed it to finish.
func (c *Cache) warm(ctx context.Context) (finished bool, err error) {
	if pause.For(ctx, c.warmAfter) != nil || !c.decodeAll(ctx) {
		return false, nil
	}
	if err := c.store.AddIndexes(c.indexFuncs()); err != nil {
		return false, err
	}
	close(c.warmed)
	return true, nil
}

// decodeAll decodes all objects. It reports whether ctx allowed it to.
func (c *Cache) decodeAll(ctx context.Context) bool {
	for segment := range c.store.Snapshot().SegmentsFrom(keepwatch.Key{}) {
		began := time.Now()
		for o := range segment.All() {
			if cached, ok := o.(*Object); ok && ctx.Err() == nil {
				_, _ = cached.decode(true) // its readers get the error
			}
		}
		if pause.For(ctx, warmIdleRatio*time.Since(began)) != nil {
			return false
		}
	}
	return true
}

// caughtUp reports whether the cache has caught up with its source once.
func (c *Cache) caughtUp() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// WaitUntilReady waits until the cache has caught up with its source, as long as a list waits
// for a revision. If that takes longer it returns 429.
func (c *Cache) WaitUntilReady(ctx context.Context) error { return c.waitUntilReady(ctx, revisionWait) }

func (c *Cache) waitUntilReady(ctx context.Context, timeout time.Duration) error {
	if c.ReadinessCheck() == nil {
		return nil
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-c.ready:
	case <-c.Ended():
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := c.ReadinessCheck(); err != nil {
		return apierrors.NewTooManyRequests(err.Error(), retryAfter)
	}
	return nil
}
