package storage

import (
	"context"
	"errors"
	"time"

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

// ErrElsewhere says that the store does not have what a read needs: etcd has it, or
// says why not.
var ErrElsewhere = errors.New("not in the store")

// Barrier waits until the store holds all that was committed when it was called, and
// tells which revision that is: etcd's newest one, by a quorum read that began after
// the call and is shared by all who wait for one. It fails if etcd does not answer, and
// with the API's "Too large resource version" if the store takes longer than 3 seconds.
func (s *Storage) Barrier(ctx context.Context) (keepwatch.Revision, error) {
	newest, err := s.source.Newest(ctx)
	if err != nil {
		return 0, err
	}
	return newest, s.reach(ctx, newest)
}

// Await waits until the store holds a revision. It fails with the API's "Too large
// resource version" if that takes longer than 3 seconds.
func (s *Storage) Await(ctx context.Context, revision keepwatch.Revision) error {
	if s.store.Held() >= revision {
		return nil
	}
	defer s.meter.waited(ctx, time.Now())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		newest, err := s.source.Newest(ctx) // it makes the store go on
		if err == nil && newest >= revision {
			return s.come(ctx, revision)
		}
		if err := s.awaitFor(ctx, revision, askAgain); err == nil || ctx.Err() != nil {
			return s.come(ctx, revision)
		}
	}
}

// At is the state at a revision, exactly. It fails as Await does, and with
// ErrElsewhere if the state is no longer in the store.
func (s *Storage) At(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if err := s.Await(ctx, revision); err != nil {
		return nil, err
	}
	snapshot, err := s.store.At(revision)
	if err != nil {
		return nil, ErrElsewhere
	}
	return snapshot, nil
}

// isPast refuses a revision that etcd has not reached. kube-apiserver has etcd answer exact
// reads of one object, which does not wait, nor say when to ask again.
func (s *Storage) isPast(ctx context.Context, revision keepwatch.Revision) error {
	if s.store.Held() >= revision {
		return nil
	}
	newest, err := s.source.Newest(ctx)
	if err != nil {
		return s.readError(err)
	}
	if newest < revision {
		return apistorage.NewTooLargeResourceVersionError(uint64(revision), uint64(newest), 0)
	}
	return nil
}

// newest is a state that has everything which was committed when it was asked for. If
// etcd is away, there is no use in asking it for the state.
func (s *Storage) newest(ctx context.Context) (*store.Snapshot, error) {
	if _, err := s.Barrier(ctx); err != nil {
		return nil, s.readError(err)
	}
	return s.store.Snapshot(), nil
}

// notOlderThan is the state now, or as soon as it has reached a revision.
func (s *Storage) notOlderThan(ctx context.Context, revision keepwatch.Revision) (*store.Snapshot, error) {
	if err := s.Await(ctx, revision); err != nil {
		return nil, err
	}
	return s.store.Snapshot(), nil
}

// reach waits until the store holds a revision that etcd has, but not for longer than
// patience.
func (s *Storage) reach(ctx context.Context, revision keepwatch.Revision) error {
	if s.store.Held() >= revision {
		return nil
	}
	defer s.meter.waited(ctx, time.Now())
	return s.come(ctx, revision)
}

// come is reach, as part of a longer wait.
func (s *Storage) come(ctx context.Context, revision keepwatch.Revision) error {
	if s.awaitFor(ctx, revision, patience) != nil {
		return apistorage.NewTooLargeResourceVersionError(uint64(revision), uint64(s.store.Held()), retryAfter)
	}
	return nil
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
