package storage

import (
	"context"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Get reads one object: at least as new as options ask for, or newer than anything
// that was committed when it was called.
func (s *Storage) Get(ctx context.Context, key string, options apistorage.GetOptions, into runtime.Object) error {
	scope, err := s.scope(key, false)
	if err != nil {
		return err
	}
	least, err := s.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return err
	}
	if !s.config.fits(keyOf(scope.path)) || s.ReadinessCheck() != nil { // the store has no such key
		return s.readError(s.etcd.Get(ctx, key, options, into))
	}
	var snapshot *store.Snapshot
	if options.ResourceVersion == "" {
		if snapshot, err = s.newest(ctx); err != nil && !apistorage.IsUnreachable(err) {
			err = s.readError(s.etcd.Get(ctx, key, options, into))
			s.meter.consistent(err, true)
			return err
		}
		if s.meter.consistent(err, false); err != nil {
			return err
		}
	} else if snapshot, err = s.notOlderThan(ctx, keepwatch.Revision(least)); err != nil {
		return err
	}
	held, ok := snapshot.Get(keyOf(scope.path))
	if !ok {
		if options.IgnoreNotFound {
			return runtime.SetZeroValue(into)
		}
		return apistorage.NewKeyNotFoundError(scope.key, int64(snapshot.Revision()))
	}
	o, err := s.Read(held)
	if err != nil {
		if err = fallback(err); !errors.Is(err, ErrElsewhere) {
			return err
		}
		return s.readError(s.etcd.Get(ctx, key, options, into))
	}
	decoded, err := o.Decoded()
	if err != nil {
		return s.readError(s.etcd.Get(ctx, key, options, into))
	}
	target, err := conversion.EnforcePtr(into)
	if err != nil {
		return err
	}
	target.Set(reflect.ValueOf(decoded).Elem())
	return nil
}
