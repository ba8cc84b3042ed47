package watchcache

import (
	"context"

	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Get returns the object at a key: of a state not older than resourceVersion, or if that is empty
// with everything that was committed when Get was called. If the state has no such object, Get
// returns the API's NotFound. It returns ErrNotCached if only the source can answer, and
// ErrNotConfirmed if that is because the cache may not be current.
func (c *Cache) Get(ctx context.Context, key, resourceVersion string) (*Object, error) {
	s, err := c.scope(key, false)
	if err != nil {
		return nil, err
	}
	least, err := versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return nil, err
	}
	if !c.Accepts(keyOf(s.path)) || c.ReadinessCheck() != nil {
		return nil, ErrNotCached
	}
	var snapshot *store.Snapshot
	if resourceVersion != "" {
		snapshot, err = c.notOlderThan(ctx, keepwatch.Revision(least))
	} else if snapshot, err = c.newestOf(ctx, true); err != nil && !apistorage.IsUnreachable(err) {
		return nil, ErrNotConfirmed
	} else {
		c.meter.consistent(err)
	}
	if err != nil {
		return nil, err
	}
	o, ok := snapshot.Get(keyOf(s.path))
	if !ok {
		return nil, apistorage.NewKeyNotFoundError(s.key, int64(snapshot.Revision()))
	}
	cached, err := c.Read(o)
	if err != nil {
		return nil, notCached(err)
	}
	return cached, nil
}

// Cached returns the object at a key in the newest state, without waiting. It returns nil if
// there is none or if it can't be read.
func (c *Cache) Cached(key string) *Object {
	s, err := c.scope(key, false)
	if err != nil {
		return nil
	}
	o, ok := c.store.Snapshot().Get(keyOf(s.path))
	if !ok {
		return nil
	}
	cached, err := c.Read(o)
	if err != nil {
		return nil
	}
	return cached
}
