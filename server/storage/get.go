package storage

import (
	"context"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Get reads one object: not older than options ask for, or with everything that was committed when
// it was called.
func (s *Storage) Get(ctx context.Context, key string, options apistorage.GetOptions, into runtime.Object) error {
	cached, err := s.cache.Get(ctx, key, options.ResourceVersion)
	switch {
	case errors.Is(err, watchcache.ErrNotConfirmed):
		err = s.getFromEtcd(ctx, key, options, into)
		s.meter.fallback(err)
		return err
	case errors.Is(err, watchcache.ErrNotCached):
		return s.getFromEtcd(ctx, key, options, into)
	case apistorage.IsNotFound(err) && options.IgnoreNotFound:
		return runtime.SetZeroValue(into)
	case err != nil:
		return err
	}
	decoded, err := cached.Decoded()
	if err != nil {
		return s.getFromEtcd(ctx, key, options, into)
	}
	target, err := conversion.EnforcePtr(into)
	if err != nil {
		return err
	}
	target.Set(reflect.ValueOf(decoded).Elem())
	return nil
}

func (s *Storage) getFromEtcd(ctx context.Context, key string, options apistorage.GetOptions,
	into runtime.Object) error {
	return s.readError(s.etcd.Get(ctx, key, options, into))
}
