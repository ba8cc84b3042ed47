package storage

import (
	"context"
	"reflect"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// WarmAfter sets the time from the start to the decoding of what was read until then.
func (s *Storage) WarmAfter(d time.Duration) {
	*(*time.Duration)(s.field("warmAfter").Addr().UnsafePointer()) = d
}

// Break makes the next change that etcd sends break an invariant: history without a list.
func (s *Storage) Break() error {
	return (*store.Store)(s.field("store").UnsafePointer()).Invalidate(context.Background(), keepwatch.GapRewind)
}

// field returns a field of the watch cache, which nothing outside can change.
func (s *Storage) field(name string) reflect.Value {
	return reflect.ValueOf(s.cache).Elem().FieldByName(name)
}

// CheckConsistency compares the cache with etcd once.
func (s *Storage) CheckConsistency(ctx context.Context) { s.checkConsistency(ctx) }
