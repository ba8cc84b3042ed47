package kube

import (
	"compress/flate"
	"compress/gzip"
	"crypto/tls"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// statusTable maps a server's Status to a failure kind. The Status is a response, or an
// ERROR event of a watch. The first row that matches counts: causes and reasons precede
// codes.
var statusTable = []struct {
	name    string
	matches statusMatch
	kind    keepwatch.FailureKind
}{
	{"revision ahead of the server's", tooLarge, keepwatch.RevisionTooLarge},
	{"unreadable object in storage", reason(metav1.StatusReasonStoreReadError, "StoreReadError"), keepwatch.StorageRead},
	{"too old", either(reason(metav1.StatusReasonExpired, metav1.StatusReasonGone), code(410)), keepwatch.Expired},
	{"credentials refused", either(reason(metav1.StatusReasonUnauthorized), code(401)), keepwatch.Unauthorized},
	{"not allowed", either(reason(metav1.StatusReasonForbidden), code(403)), keepwatch.Forbidden},
	{"not served", either(reason(metav1.StatusReasonNotFound), code(404)), keepwatch.Absent},
	{"too many requests", either(reason(metav1.StatusReasonTooManyRequests), code(429)), keepwatch.Throttled},
	{"overloaded, with Retry-After", both(asksToWait, serverError), keepwatch.Throttled},
	{"invalid request", either(reason(metav1.StatusReasonBadRequest, metav1.StatusReasonInvalid,
		metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonUnsupportedMediaType,
		metav1.StatusReasonRequestEntityTooLarge), code(400, 405, 406, 413, 414, 415, 422)), keepwatch.Rejected},
	{"server error", serverError, keepwatch.ServerError},
}

func kindOfStatus(s *metav1.Status, hasRetryAfter bool) keepwatch.FailureKind {
	for _, row := range statusTable {
		if row.matches(s, hasRetryAfter) {
			return row.kind
		}
	}
	return keepwatch.UnknownStatus
}

// statusMatch matches a Status. hasRetryAfter: the server said how long to wait.
type statusMatch func(s *metav1.Status, hasRetryAfter bool) bool

func reason(reasons ...metav1.StatusReason) statusMatch {
	return func(s *metav1.Status, _ bool) bool { return slices.Contains(reasons, s.Reason) }
}

func code(codes ...int32) statusMatch {
	return func(s *metav1.Status, _ bool) bool { return slices.Contains(codes, s.Code) }
}

func either(a, b statusMatch) statusMatch {
	return func(s *metav1.Status, hasRetryAfter bool) bool { return a(s, hasRetryAfter) || b(s, hasRetryAfter) }
}

func both(a, b statusMatch) statusMatch {
	return func(s *metav1.Status, hasRetryAfter bool) bool { return a(s, hasRetryAfter) && b(s, hasRetryAfter) }
}

func asksToWait(_ *metav1.Status, hasRetryAfter bool) bool { return hasRetryAfter }

// serverError matches every 5xx, including those of proxies, and 408, a timeout of the
// server.
func serverError(s *metav1.Status, hasRetryAfter bool) bool {
	return s.Code >= 500 && s.Code < 600 || s.Code == http.StatusRequestTimeout ||
		reason(metav1.StatusReasonInternalError, metav1.StatusReasonServerTimeout,
			metav1.StatusReasonTimeout, metav1.StatusReasonServiceUnavailable)(s, hasRetryAfter)
}

// tooLarge matches by the cause; servers before 1.19 sent only the message.
func tooLarge(s *metav1.Status, _ bool) bool {
	const message = "Too large resource version"
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if cause.Type == metav1.CauseTypeResourceVersionTooLarge || cause.Message == message {
				return true
			}
		}
	}
	return s.Reason == metav1.StatusReasonTimeout && strings.Contains(s.Message, message)
}

// transportTable maps the error of an interrupted request or response to a failure kind.
// The first row that matches counts; an error without a row is Unreachable.
var transportTable = []struct {
	name    string
	matches func(err error) bool
	kind    keepwatch.FailureKind
}{
	{"too long", as[tooLong], keepwatch.Undecodable},
	{"corrupt compression", corruptCompression, keepwatch.Undecodable},
	// Go has two implementations of HTTP/2, each with its own error type, one of them private.
	{"graceful shutdown of the connection", messageContains("http2: server sent GOAWAY", "ErrCode=NO_ERROR"),
		keepwatch.Ended},
	{"server certificate refused", as[*tls.CertificateVerificationError], keepwatch.Untrusted},
	{"client certificate refused", messageContains("remote error: tls: ", "certificate"), keepwatch.Unauthorized},
	// From client-go's exec plugin, which runs again with the next request.
	{"no credentials", messageContains("getting credentials: "), keepwatch.Unauthorized},
}

func kindOfTransportError(err error) keepwatch.FailureKind {
	for _, row := range transportTable {
		if row.matches(err) {
			return row.kind
		}
	}
	return keepwatch.Unreachable
}

func as[E error](err error) bool {
	var target E
	return errors.As(err, &target)
}

// messageContains matches errors whose message has every part.
func messageContains(parts ...string) func(error) bool {
	return func(err error) bool {
		text := err.Error()
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	}
}

func corruptCompression(err error) bool {
	return as[flate.CorruptInputError](err) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum)
}

// retryAfter returns the wait of a Retry-After header (RFC 9110, 10.2.3: seconds or a
// date), 0 without one.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if value == "" {
		return 0
	}
	if wait, ok := parseSeconds(value); ok {
		return wait
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
