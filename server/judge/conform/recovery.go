package conform

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// notReady ends the message of kube-apiserver's answer 403 to a write while its admission plugins have not read
// their configuration (admission.NewForbidden in k8s.io/apiserver/pkg/admission/plugin).
const notReady = "not yet ready to handle request"

// temporary reports whether the server may accept the same request later: it starts, or is overloaded. A server that
// was disturbed refuses its users until it has read them and their roles.
func (s *subject) temporary(a answer) bool {
	disturbed := s.disturbed != nil && s.disturbed.Load()
	switch a.code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	case http.StatusUnauthorized:
		return disturbed
	case http.StatusForbidden:
		return disturbed || strings.HasSuffix(a.status().Message, notReady)
	}
	return false
}

// retryAfter is the wait before a request with a temporary answer is repeated.
func (a answer) retryAfter() time.Duration {
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return reconnect
}

// patience is the time in which a request with an answer is repeated, 0 for a final answer.
func (s *subject) patience(a answer) time.Duration {
	switch {
	case s.temporary(a):
		return s.waits.recovery
	case tooLarge(a) && !s.future:
		return s.waits.lag
	}
	return 0
}

// recovered calls do while its answer is one that patience helps with, and returns the last answer. An error of do is
// returned at once.
func (s *subject) recovered(ctx context.Context, do func() (answer, error)) (answer, error) {
	began := time.Now()
	behind := began // when the first of the requests was made that found the server behind
	for {
		a, err := do()
		since := began
		if tooLarge(a) {
			since = behind
		}
		if err != nil || time.Since(since)+a.retryAfter() > s.patience(a) || sleep(ctx, a.retryAfter()) != nil {
			return a, err
		}
		if !tooLarge(a) {
			behind = time.Now()
		}
	}
}
