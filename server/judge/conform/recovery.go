package conform

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// recovery bounds the time in which the server answers a request again, after a disturbance or while it
// throttles. Tests shorten it.
var recovery = 5 * time.Minute

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

// recovered calls do until its answer is not temporary, for at most the time recovery: then it returns the last
// answer. An error of do is returned at once.
func (s *subject) recovered(ctx context.Context, do func() (answer, error)) (answer, error) {
	deadline := time.Now().Add(recovery)
	for {
		a, err := do()
		if err != nil || !s.temporary(a) || time.Now().Add(a.retryAfter()).After(deadline) ||
			sleep(ctx, a.retryAfter()) != nil {
			return a, err
		}
	}
}
