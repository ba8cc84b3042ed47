// Package startup sends requests whose responses are needed before a stream can begin: a stream and its API server can
// be started in any order.
package startup

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
)

// waits bounds the random wait between two requests. The reflector waits the same between its own.
var waits = backoff.Exponential{First: 800 * time.Millisecond, Max: 30 * time.Second}

// Retry sends a request until it succeeds or fails with a final error. It retries the failures that the reflector's
// failure table retries, and reports each attempt: logf may be nil. When ctx is done it returns ctx's cause.
func Retry(ctx context.Context, logf func(format string, args ...any), request func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := request(ctx)
		switch {
		case err == nil || Final(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wait := delay(err, attempt)
		if logf != nil {
			logf("%v; retrying in %v", err, wait.Round(100*time.Millisecond))
		}
		_ = pause.For(ctx, wait)
	}
}

// refusal is an error of a request for which a retry has the same result.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Refused marks the error of a request for which a retry has the same result.
func Refused(err error) error { return refusal{err} }

// Final reports whether a request with this error is not retried: one that is [Refused], or a failure for which the
// failure table ends a run before its first success.
func Final(err error) bool {
	return errors.As(err, new(refusal)) || reflector.EndsStartup(kube.FailureOf("", err).Kind)
}

// delay returns the wait after an attempt, counted from 0: at least Retry-After of the response.
func delay(err error, attempt int) time.Duration {
	return kube.FailureOf("", err).RetryAfter + backoff.FullJitter(waits.Wait(attempt), rand.Int64N)
}

// WithoutAddress returns the error of a request without its URL. The URL is that of an internal request,
// which does not help a user.
func WithoutAddress(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
