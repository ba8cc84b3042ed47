package storage

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keepwatch/keepwatch"
)

const (
	// history is how many revisions before its start a storage takes up, at most: those
	// of five minutes, after which kube-apiserver compacts them, at 300 writes a second.
	history = 100_000
	// startPatience is how long a watch waits for the start, of which an end is in sight:
	// who is refused asks again a second later, together with all others. A list waits
	// for patience, since it holds one of the places of requests meanwhile.
	startPatience = 20 * time.Second
	// warmAfter is how long behind the start begins what decodes what was read until
	// then, and warmRests how much longer that rests than it works.
	warmAfter = 5 * time.Second
	warmRests = 3
)

// catchUp waits until the store holds what etcd had when it began: before that it
// may hold a state from before the last run.
func (s *Storage) catchUp(ctx context.Context, begun time.Time) {
	for ctx.Err() == nil {
		newest, err := s.source.Newest(ctx)
		if err == nil {
			err = s.await(ctx, newest)
		}
		if err == nil {
			s.meter.initialized(begun)
			close(s.ready)
			return
		}
		rest(ctx, askAgain)
	}
}

// warm opens what the store took up while the storage started, so that the first who
// reads it need not wait for that, and then adds the indexes, which go by it: before
// they are there, lists look at all objects. It lets clients pass first, who all come
// back at this time, and leaves them most of a processor.
func (s *Storage) warm(ctx context.Context) error {
	if !rest(ctx, s.warmAfter) || !s.openAll(ctx) {
		return nil
	}
	if err := s.store.AddIndexes(s.functions()); err != nil {
		return err
	}
	close(s.warmed)
	return nil
}

// openAll reports whether it did not end early.
func (s *Storage) openAll(ctx context.Context) bool {
	for segment := range s.store.Snapshot().SegmentsFrom(keepwatch.Key{}) {
		began := time.Now()
		for o := range segment.All() {
			if known, ok := o.(*Object); ok && ctx.Err() == nil {
				_, _ = known.open(true) // why it can't be read is for who reads it
			}
		}
		if !rest(ctx, warmRests*time.Since(began)) {
			return false
		}
	}
	return true
}

// rest reports whether it did not end early.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// caughtUp reports whether the store has caught up with etcd once.
func (s *Storage) caughtUp() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// readiness waits until the store has caught up, but not for longer than most.
func (s *Storage) readiness(ctx context.Context, most time.Duration) error {
	if s.ReadinessCheck() == nil {
		return nil
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-s.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	if err := s.ReadinessCheck(); err != nil {
		return apierrors.NewTooManyRequests(err.Error(), retryAfter)
	}
	return nil
}
