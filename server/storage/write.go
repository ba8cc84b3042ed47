package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Create writes a new object through etcd3 and stores the result in out; it fails as etcd3 does.
func (s *Storage) Create(ctx context.Context, key string, o, out runtime.Object, ttl uint64) error {
	return s.etcd.Create(ctx, key, o, out, ttl)
}

// Delete calls etcd3, with the cached object as the first guess at the current one.
func (s *Storage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, _ runtime.Object, options apistorage.DeleteOptions) error {
	return s.etcd.Delete(ctx, key, out, preconditions, validate, s.guess(key), options)
}

// GuaranteedUpdate calls etcd3, with the cached object as the first guess at the current one.
func (s *Storage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, _ runtime.Object) error {
	return s.etcd.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, s.guess(key))
}

// guess returns the object at a key as the cache has it, nil if it does not. It is the caller's.
// The object that a caller of Delete or GuaranteedUpdate suggests is not newer.
func (s *Storage) guess(key string) runtime.Object {
	cached := s.cache.Cached(key)
	if cached == nil {
		return nil
	}
	decoded, err := cached.Decoded()
	if err != nil {
		return nil
	}
	return decoded
}

// Stats returns how many objects etcd has, and their average size there. It waits until the cache has
// them: the API server's priority and fairness take objects without a size for the largest possible.
func (s *Storage) Stats(ctx context.Context) (apistorage.Stats, error) {
	if err := s.cache.WaitUntilReady(ctx); err != nil {
		return apistorage.Stats{}, err
	}
	if _, err := s.cache.WaitForNewest(ctx); err != nil {
		return apistorage.Stats{}, err
	}
	snapshot := s.cache.Snapshot()
	stats := apistorage.Stats{ObjectCount: int64(snapshot.Len())}
	if stats.ObjectCount > 0 && utilfeature.DefaultFeatureGate.Enabled(features.SizeBasedListCostEstimate) {
		total := int64(0)
		for o := range snapshot.All() {
			if cached, ok := o.(*watchcache.Object); ok {
				total += int64(cached.Size())
			}
		}
		stats.EstimatedAverageObjectSizeBytes = total / stats.ObjectCount
	}
	return stats, nil
}
