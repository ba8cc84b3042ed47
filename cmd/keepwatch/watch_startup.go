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

// ask puts a question to the server that has to be answered before the stream can begin. What the
// failure table waits for is waited for here too, with a line for each try: a stream that is started
// together with its API server must not depend on which of them is first. What the server refuses,
// it refuses for good.
func ask(ctx context.Context, status *statusPrinter, request func(context.Context) error) error {
	for attempt := 0; ; attempt++ {
		err := request(ctx)
		switch {
		case err == nil || final(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wait := pause(err, attempt)
		status.printf("%v; asking again in %v", err, wait.Round(100*time.Millisecond))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// refusal is an answer that stays the same however often the server is asked.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// final reports whether an error is not worth another try: what the failure table ends a run with as
// long as nothing has succeeded.
func final(err error) bool {
	return errors.As(err, new(refusal)) || reflector.EndsStartup(kube.FailureOf("", err).Kind)
}

// pause is how long to wait after an attempt, counted from 0: at least as long as the server asked for.
func pause(err error, attempt int) time.Duration {
	return kube.FailureOf("", err).RetryAfter + backoff.FullJitter(startWaits.Wait(attempt), rand.Int64N)
}

// withoutAddress is the error of a request without the address that was asked: it is one of many, and
// says less than what went wrong there.
func withoutAddress(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
