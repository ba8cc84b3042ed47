package storage

import (
	"context"
	"errors"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// patience is how long a read waits for the store to hold a revision, as in
	// kube-apiserver.
	patience = 3 * time.Second
	// retryAfter is when a client may ask again for what did not come in time, in
	// seconds.
	retryAfter = 1
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
	if scope.path == "" || s.ReadinessCheck() != nil { // what is at the prefix itself is not the store's
		return s.etcd.Get(ctx, key, options, into)
	}
	var snapshot *store.Snapshot
	if options.ResourceVersion == "" {
		if snapshot, err = s.newest(ctx); err != nil {
			return s.etcd.Get(ctx, key, options, into)
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
		return s.etcd.Get(ctx, key, options, into)
	}
	target, err := conversion.EnforcePtr(into)
	if err != nil {
		return err
	}
	target.Set(reflect.ValueOf(o.decoded.DeepCopyObject()).Elem())
	return nil
}

// newest is a state that has everything which was committed when it was asked for.
func (s *Storage) newest(ctx context.Context) (*store.Snapshot, error) {
	revision, err := s.source.Newest(ctx)
	if err != nil {
		return nil, err
	}
	return s.reached(ctx, revision)
}

// notOlderThan is the state now, or as soon as it has reached a revision.
func (s *Storage) notOlderThan(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if now := s.store.Snapshot(); now.Revision() >= revision {
		return now, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		newest, err := s.source.Newest(ctx) // it makes the store go on
		if err == nil && newest >= revision {
			return s.reached(ctx, revision)
		}
		if err := s.awaitFor(ctx, revision, askAgain); err == nil || ctx.Err() != nil {
			return s.reached(ctx, revision)
		}
	}
}

// reached is the state as soon as it has a revision that etcd has. It fails in the
// API's words if that takes longer than patience.
func (s *Storage) reached(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if err := s.awaitFor(ctx, revision, patience); err != nil {
		return nil, apistorage.NewTooLargeResourceVersionError(uint64(revision), uint64(s.store.Held()), retryAfter)
	}
	return s.store.Snapshot(), nil
}

func (s *Storage) awaitFor(ctx context.Context, revision keepwatch.Revision, most time.Duration) error {
	if s.store.Held() >= revision {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return s.await(ctx, revision)
}

// await waits until the store holds a revision.
func (s *Storage) await(ctx context.Context, revision keepwatch.Revision) error {
	watcher := s.store.Watch(s.store.Snapshot().Cursor(), store.Filter{})
	for s.store.Held() < revision {
		if _, err := watcher.Next(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil { // the store has leapt where the watcher can't follow
			watcher = s.store.Watch(s.store.Snapshot().Cursor(), store.Filter{})
		}
	}
	return nil
}

// at is the state at a revision, exactly. It fails with errElsewhere if it is no
// longer in the store.
func (s *Storage) at(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if _, err := s.notOlderThan(ctx, revision); err != nil {
		return nil, err
	}
	snapshot, err := s.store.At(revision)
	if err != nil {
		return nil, errElsewhere
	}
	return snapshot, nil
}

// errElsewhere says that a read has to be answered by etcd.
var errElsewhere = errors.New("not in the store")

// readiness waits until the store has caught up, but not for longer than patience.
func (s *Storage) readiness(ctx context.Context) error {
	if s.ReadinessCheck() == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := s.ReadinessCheck(); err != nil {
		return apierrors.NewTooManyRequests(err.Error(), retryAfter)
	}
	return nil
}
