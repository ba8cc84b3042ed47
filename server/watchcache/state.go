package watchcache

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

var (
	// ErrNotCached is returned when the cache cannot answer a read and the caller must ask the
	// source.
	ErrNotCached = errors.New("not in the watch cache")
	// ErrNotConfirmed is an ErrNotCached of a consistent read: the cache could not confirm that
	// it is current.
	ErrNotConfirmed = fmt.Errorf("%w: it cannot be confirmed as current", ErrNotCached)
)

// state returns the state that r asks for, once the cache has it.
func (c *Cache) state(ctx context.Context, r ListRequest) (*store.Snapshot, error) {
	switch r.match {
	case metav1.ResourceVersionMatchExact:
		if r.paged() && c.config.Compacted != nil && r.revision < c.config.Compacted() {
			return nil, ErrNotCached
		}
		if !r.recursive {
			if err := c.rejectUncommitted(ctx, r.revision); err != nil {
				return nil, err
			}
		}
		return c.SnapshotAt(ctx, r.revision)
	case metav1.ResourceVersionMatchNotOlderThan:
		return c.notOlderThan(ctx, r.revision)
	}
	return c.current(ctx, !r.recursive)
}

// SnapshotAt returns the state at a revision, exactly. It fails as WaitForRevision does, and with
// ErrNotCached if the state is no longer in the cache.
func (c *Cache) SnapshotAt(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if err := c.WaitForRevision(ctx, revision); err != nil {
		return nil, err
	}
	snapshot, err := c.store.At(revision)
	if err != nil || c.dropped(revision) {
		return nil, ErrNotCached
	}
	return snapshot, nil
}

// notOlderThan returns the newest state, as soon as it has reached a revision.
func (c *Cache) notOlderThan(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if err := c.WaitForRevision(ctx, revision); err != nil {
		return nil, err
	}
	return c.store.Snapshot(), nil
}

// newestOf is newest for a list, or for one object. The source answers what fails. One object costs it little: until
// the cache has reached what another read waited for in vain, such a read does not wait.
func (c *Cache) newestOf(ctx context.Context, one bool) (*store.Snapshot, error) {
	if one && uint64(c.store.Revision()) < c.missed.Load() {
		ctx = Waited(ctx)
	}
	return c.newest(ctx)
}

// newest returns a state that has everything which was committed when it was called.
func (c *Cache) newest(ctx context.Context) (*store.Snapshot, error) {
	if _, err := c.WaitForNewest(ctx); err != nil {
		return nil, c.readError(err)
	}
	return c.store.Snapshot(), nil
}

// current is newestOf for List. If the source is unavailable, asking it for the state has no
// use; any other failure is the source's to report.
func (c *Cache) current(ctx context.Context, one bool) (*store.Snapshot, error) {
	snapshot, err := c.newestOf(ctx, one)
	if err != nil && !apistorage.IsTooLargeResourceVersion(err) && !apistorage.IsUnreachable(err) {
		return nil, ErrNotConfirmed
	}
	return snapshot, err
}
