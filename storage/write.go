package storage

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Create is etcd3's.
func (s *Storage) Create(ctx context.Context, key string, o, out runtime.Object, ttl uint64) error {
	return s.etcd.Create(ctx, key, o, out, ttl)
}

// Delete is etcd3's, with the store's state as the first guess at the current one.
func (s *Storage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *apistorage.Preconditions,
	validate apistorage.ValidateObjectFunc, _ runtime.Object, options apistorage.DeleteOptions) error {
	return s.etcd.Delete(ctx, key, out, preconditions, validate, s.guess(key), options)
}

// GuaranteedUpdate is etcd3's, with the store's state as the first guess at the
// current one.
func (s *Storage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool,
	preconditions *apistorage.Preconditions, update apistorage.UpdateFunc, _ runtime.Object) error {
	return s.etcd.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, s.guess(key))
}

// guess is the object at a key as the store has it, nil if it does not. It is the
// caller's. What a caller of Delete or GuaranteedUpdate suggests is not newer.
func (s *Storage) guess(key string) runtime.Object {
	scope, err := s.scope(key, false)
	if err != nil {
		return nil // etcd3 says why
	}
	held, ok := s.store.Snapshot().Get(keyOf(scope.path))
	if !ok {
		return nil
	}
	known, err := s.Read(held)
	if err != nil {
		return nil
	}
	decoded, err := known.Decoded()
	if err != nil {
		return nil
	}
	return decoded
}

// Stats counts the objects that etcd has, and tells their average size there.
func (s *Storage) Stats(ctx context.Context) (apistorage.Stats, error) {
	if s.ReadinessCheck() != nil {
		return s.etcd.Stats(ctx)
	}
	snapshot, err := s.newest(ctx)
	if err != nil {
		return s.etcd.Stats(ctx)
	}
	stats := apistorage.Stats{ObjectCount: int64(snapshot.Len())}
	if stats.ObjectCount > 0 && utilfeature.DefaultFeatureGate.Enabled(features.SizeBasedListCostEstimate) {
		total := int64(0)
		for o := range snapshot.All() {
			total += int64(size(o))
		}
		stats.EstimatedAverageObjectSizeBytes = total / stats.ObjectCount
	}
	return stats, nil
}
