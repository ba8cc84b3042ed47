package audit

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/pause"
)

// waits bounds the random wait between two attempts of a request. Tests shorten it.
var waits = backoff.Exponential{First: 500 * time.Millisecond, Max: 8 * time.Second}

const (
	// maxAttempts bounds the attempts of one request. A server waits 3 s for a revision that it
	// does not have yet, so that it has half a minute to reach it.
	maxAttempts = 7
	// maxRetryAfter bounds the wait that a server asks for.
	maxRetryAfter = time.Minute
)

// attempt sends a request until it succeeds, fails in a way that a repetition does not change,
// or has failed maxAttempts times.
func attempt[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	for n := 0; ; n++ {
		result, err := request(ctx)
		wait, ok := retryWait(err, n)
		if !ok {
			return result, err
		}
		if err := pause.For(ctx, wait); err != nil {
			return result, err
		}
	}
}

// retryWait returns the wait behind attempt n, counted from 0, and whether another one follows.
func retryWait(err error, n int) (time.Duration, bool) {
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) || n+1 >= maxAttempts {
		return 0, false
	}
	switch failure.Kind {
	case keepwatch.Unreachable, keepwatch.Idle, keepwatch.Throttled, keepwatch.ServerError, keepwatch.RevisionTooLarge,
		keepwatch.StaleReplica:
		return max(min(failure.RetryAfter, maxRetryAfter), backoff.FullJitter(waits.Wait(n), rand.Int64N)), true
	}
	return 0, false
}

func expired(err error) bool  { return failed(err, keepwatch.Expired) }
func tooLarge(err error) bool { return failed(err, keepwatch.RevisionTooLarge) }

// failed reports whether an error wraps a failure of one of the kinds.
func failed(err error, kinds ...keepwatch.FailureKind) bool {
	var failure *keepwatch.Failure
	if !errors.As(err, &failure) {
		return false
	}
	for _, kind := range kinds {
		if failure.Kind == kind {
			return true
		}
	}
	return false
}
