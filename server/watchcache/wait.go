package watchcache

import (
	"context"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// revisionWait is how long a read waits for a revision, as in kube-apiserver.
	revisionWait = 3 * time.Second
	// retryAfter is the Retry-After of a read whose revision the cache did not reach in time, in
	// seconds.
	retryAfter = 1
	// newestRetry is the pause after the source failed to return its newest revision.
	newestRetry = 100 * time.Millisecond
	// forever is the timeout of waits that only their context ends.
	forever time.Duration = math.MaxInt64
)

// waitForRevision waits until the cache has reached revision, up to timeout. It returns the
// cause of the context that ended the wait.
func (c *Cache) waitForRevision(ctx context.Context, revision keepwatch.Revision, timeout time.Duration) error {
	if c.store.Revision() >= revision {
		return nil
	}
	if timeout != forever {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
	}
	watcher := c.store.Watch(c.store.Snapshot().Cursor(), store.Filter{})
	for c.store.Revision() < revision {
		if _, err := watcher.Next(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil { // the store has leapt and the watcher can't follow
			watcher = c.store.Watch(c.store.Snapshot().Cursor(), store.Filter{})
		}
	}
	return nil
}

// WaitForNewest waits until the cache has everything that was committed when it was called. It
// returns the newest revision, by a read of the source that began after the call and is shared
// with other waiting calls. It fails if the source does not answer, and with the API's "Too
// large resource version" if the cache needs longer than 3 seconds.
func (c *Cache) WaitForNewest(ctx context.Context) (keepwatch.Revision, error) {
	newest, err := c.source.Newest(ctx)
	if err != nil {
		return 0, err
	}
	if c.store.Revision() < newest {
		defer c.meter.waited(ctx, time.Now())
	}
	err = c.requireRevision(ctx, newest)
	if err != nil && ctx.Err() == nil && ctx.Value(waited{}) == nil {
		c.missed.Store(uint64(newest))
	}
	return newest, err
}

// WaitForRevision waits until the cache has reached a revision that a client has named. It asks
// the source for its newest revision meanwhile, which makes the cache continue. It fails with the
// API's "Too large resource version" after 3 seconds.
func (c *Cache) WaitForRevision(ctx context.Context, revision keepwatch.Revision) error {
	if c.store.Revision() >= revision {
		return nil
	}
	defer c.meter.waited(ctx, time.Now())
	if ctx.Value(waited{}) != nil {
		return c.requireRevision(ctx, revision)
	}
	ctx, cancel := context.WithTimeout(ctx, revisionWait)
	defer cancel()
	for {
		newest, err := c.source.Newest(ctx)
		if err == nil && newest >= revision {
			return c.requireRevision(ctx, revision)
		}
		if err := c.waitForRevision(ctx, revision, newestRetry); err == nil || ctx.Err() != nil {
			return c.requireRevision(ctx, revision)
		}
	}
}

// waited is the key of Waited.
type waited struct{}

// Waited returns the context of a read that has waited for the cache as long as it may. It does not wait for a revision
// again.
func Waited(ctx context.Context) context.Context { return context.WithValue(ctx, waited{}, true) }

// requireRevision waits for a revision up to revisionWait, and returns the API's error after that.
func (c *Cache) requireRevision(ctx context.Context, revision keepwatch.Revision) error {
	wait := revisionWait
	if ctx.Value(waited{}) != nil {
		wait = 0
	}
	if c.waitForRevision(ctx, revision, wait) != nil {
		return apistorage.NewTooLargeResourceVersionError(uint64(revision), uint64(c.store.Revision()), retryAfter)
	}
	return nil
}

// rejectUncommitted returns "Too large resource version" if the source has not committed
// revision, without waiting and without a time to ask again. kube-apiserver leaves exact reads of
// one object to etcd, which answers the same.
func (c *Cache) rejectUncommitted(ctx context.Context, revision keepwatch.Revision) error {
	if c.store.Revision() >= revision {
		return nil
	}
	newest, err := c.source.Newest(ctx)
	if err != nil {
		return c.readError(err)
	}
	if newest < revision {
		return apistorage.NewTooLargeResourceVersionError(uint64(revision), uint64(newest), 0)
	}
	return nil
}

// rejectFuture returns Expired if the source has not committed a revision that the cache has not
// reached. The source answers by a read that began after the call, so that no revision of a write
// that was acknowledged before is rejected: the revision is then one of a history that a restore
// has replaced. Clients of every language list again after Expired; after "Too large resource
// version" in a watch some end, and some ask again for ever. While the source is unavailable,
// rejectFuture tries again for as long as reads wait for a revision.
func (c *Cache) rejectFuture(ctx context.Context, revision keepwatch.Revision) error {
	waiting, cancel := context.WithTimeout(ctx, revisionWait)
	defer cancel()
	for c.store.Revision() < revision {
		newest, err := c.source.Newest(waiting)
		switch {
		case err == nil && newest < revision:
			return apierrors.NewResourceExpired(fmt.Sprintf(
				"too old resource version: %d is not in %s's history, whose newest revision is %d", revision, c.config.SourceName,
				newest))
		case err == nil:
			return nil
		case !unavailable(err):
			return err
		case pause.For(waiting, newestRetry) != nil:
			return err
		}
	}
	return nil
}
