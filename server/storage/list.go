package storage

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// GetList lists the objects at a key or below it. The Kubernetes API defines which state
// resourceVersion, its match, limit and continue ask for.
func (s *Storage) GetList(ctx context.Context, key string, options apistorage.ListOptions, into runtime.Object) error {
	request, err := s.cache.ListRequest(ctx, key, options)
	if err != nil {
		return err
	}
	if s.ReadinessCheck() != nil {
		if request.Cheap() {
			return s.listFromEtcd(ctx, key, options, into)
		}
		if err := s.cache.WaitUntilReady(ctx); err != nil {
			return err
		}
	}
	result, objects, err := s.cache.ListDecoded(ctx, request)
	if errors.Is(err, watchcache.ErrNotCached) || request.Consistent() && apistorage.IsTooLargeResourceVersion(err) {
		err = s.listFromEtcd(ctx, key, options, into)
		if request.Consistent() {
			s.meter.fallback(err)
		}
		return err
	}
	if err == nil {
		err = s.fill(into, result, objects)
	}
	if err == nil && utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		options.Predicate.SetShardInfoOnList(into)
	}
	return err
}

func (s *Storage) listFromEtcd(ctx context.Context, key string, options apistorage.ListOptions,
	into runtime.Object) error {
	return s.readError(s.etcd.GetList(ctx, key, options, into))
}

// fill puts a result into a list object.
func (s *Storage) fill(into runtime.Object, result *watchcache.ListResult, objects []runtime.Object) error {
	pointer, err := meta.GetItemsPtr(into)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(pointer)
	if err != nil || items.Kind() != reflect.Slice {
		return fmt.Errorf("need a pointer to a slice, got %T: %w", pointer, err)
	}
	items.Set(reflect.MakeSlice(items.Type(), len(objects), len(objects)))
	for i, o := range objects {
		items.Index(i).Set(reflect.ValueOf(o).Elem())
	}
	return s.Versioner().UpdateList(into, uint64(result.Revision), result.Continue, result.Remaining)
}
