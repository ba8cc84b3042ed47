package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// call is one call of Handle, and when it was.
type call struct {
	key string
	at  time.Duration
}

// A key that fails is handled again after delays that double up to the longest one, and after a success they begin
// anew.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var calls []call
		var reported []error
		failed := errors.New("failed")
		conflict := apierrors.NewConflict(schema.GroupResource{}, "a", nil)
		results := []error{failed, conflict, failed, failed, nil, failed, nil}
		w := New(Options[string]{
			MinDelay: time.Second, MaxDelay: 4 * time.Second,
			Handle: func(_ context.Context, key string) error {
				calls = append(calls, call{key, time.Since(start)})
				err := results[0]
				results = results[1:]
				return err
			},
			Retrying: func(_ context.Context, key string, err error) { reported = append(reported, err) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		w.Add("a")
		w.Add("a") // waits already
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(12 * time.Second)
		w.AddAfter("a", 8*time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		<-done
		want := []call{
			{"a", 0}, {"a", time.Second}, {"a", 3 * time.Second}, {"a", 7 * time.Second}, {"a", 11 * time.Second},
			{"a", 20 * time.Second}, {"a", 21 * time.Second},
		}
		if !slices.Equal(calls, want) {
			t.Errorf("handled at %v, want %v", calls, want)
		}
		if want := []error{failed, failed, failed, failed}; !slices.Equal(reported, want) {
			t.Errorf("reported %v, want %v: all but the conflict", reported, want)
		}
	})
}

// When its context is done, a worker handles nothing more, reports no error, and leaves no goroutine: the bubble
// would not end.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		handled := 0
		w := New(Options[int]{
			MinDelay: time.Second, MaxDelay: time.Second,
			Handle: func(ctx context.Context, _ int) error {
				handled++
				cancel()
				return ctx.Err()
			},
			Retrying: func(_ context.Context, _ int, err error) { t.Errorf("reported %v", err) },
		})
		for key := range 3 {
			w.Add(key)
		}
		w.Run(ctx)
		if handled != 1 {
			t.Errorf("handled %d keys, want the first one alone", handled)
		}
		after := New(Options[int]{Handle: func(context.Context, int) error { t.Error("handled after the end"); return nil }})
		after.Add(1)
		after.Run(ctx)
	})
}
