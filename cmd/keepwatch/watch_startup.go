package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/keepwatch/keepwatch/internal/backoff"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/source/kube"
)

// startWaits bounds the random wait between two requests. The reflector waits the same between its own.
var startWaits = backoff.Exponential{First: 800 * time.Millisecond, Max: 30 * time.Second}

// retryRequest sends a request whose response is needed before the stream can begin, until it succeeds
// or fails with a final error. It retries the failures that the reflector's failure table retries, and
// prints a line for each attempt: a stream and its API server can be started in any order.
func (p *statusPrinter) retryRequest(ctx context.Context, request func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := request(ctx)
		switch {
		case err == nil || final(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wait := retryDelay(err, attempt)
		p.printf("%v; retrying in %v", err, wait.Round(100*time.Millisecond))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// refusal is an error of a request for which a retry has the same result.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// final reports whether a request with this error is not retried: a refusal, or a failure for which the
// failure table ends a run before its first success.
func final(err error) bool {
	return errors.As(err, new(refusal)) || reflector.EndsStartup(kube.FailureOf("", err).Kind)
}

// retryDelay returns the wait after an attempt, counted from 0: at least Retry-After of the response.
func retryDelay(err error, attempt int) time.Duration {
	return kube.FailureOf("", err).RetryAfter + backoff.FullJitter(startWaits.Wait(attempt), rand.Int64N)
}

// withoutAddress returns the error of a request without its URL. The URL is that of an internal request,
// which does not help a user.
func withoutAddress(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
