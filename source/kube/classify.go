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

// statusTable says what a server's Status means, be it the answer to a request
// or an ERROR event of a watch. The first row that matches counts: what the
// server says in particular goes before the code it says it with.
var statusTable = []struct {
	what    string
	matches func(s *metav1.Status, told bool) bool // told: it said how long to wait
	kind    keepwatch.FailureKind
}{
	{"revision ahead of the server's", tooLarge, keepwatch.RevisionTooLarge},
	{"unreadable object in storage", reason(metav1.StatusReasonStoreReadError, "StoreReadError"), keepwatch.StorageRead},
	{"too old", either(reason(metav1.StatusReasonExpired, metav1.StatusReasonGone), code(410)), keepwatch.Expired},
	{"credentials refused", either(reason(metav1.StatusReasonUnauthorized), code(401)), keepwatch.Unauthorized},
	{"not allowed", either(reason(metav1.StatusReasonForbidden), code(403)), keepwatch.Forbidden},
	{"not served", either(reason(metav1.StatusReasonNotFound), code(404)), keepwatch.Absent},
	{"too many requests", either(reason(metav1.StatusReasonTooManyRequests), code(429)), keepwatch.Throttled},
	{"overloaded, with advice", both(advised, serverError), keepwatch.Throttled},
	{"the request itself is wrong", either(reason(metav1.StatusReasonBadRequest, metav1.StatusReasonInvalid,
		metav1.StatusReasonMethodNotAllowed, metav1.StatusReasonNotAcceptable, metav1.StatusReasonUnsupportedMediaType,
		metav1.StatusReasonRequestEntityTooLarge), code(400, 405, 406, 413, 414, 415, 422)), keepwatch.Rejected},
	{"trouble on its side", serverError, keepwatch.ServerError},
}

func kindOfStatus(s *metav1.Status, told bool) keepwatch.FailureKind {
	for _, row := range statusTable {
		if row.matches(s, told) {
			return row.kind
		}
	}
	return keepwatch.UnknownStatus
}

type statusMatch = func(s *metav1.Status, told bool) bool

func reason(reasons ...metav1.StatusReason) statusMatch {
	return func(s *metav1.Status, _ bool) bool { return slices.Contains(reasons, s.Reason) }
}

func code(codes ...int32) statusMatch {
	return func(s *metav1.Status, _ bool) bool { return slices.Contains(codes, s.Code) }
}

func either(a, b statusMatch) statusMatch {
	return func(s *metav1.Status, told bool) bool { return a(s, told) || b(s, told) }
}

func both(a, b statusMatch) statusMatch {
	return func(s *metav1.Status, told bool) bool { return a(s, told) && b(s, told) }
}

func advised(_ *metav1.Status, told bool) bool { return told }

// serverError holds for every 5xx, those of proxies included, and for a 408,
// which is a timeout on the server's side too.
func serverError(s *metav1.Status, told bool) bool {
	return s.Code >= 500 && s.Code < 600 || s.Code == http.StatusRequestTimeout ||
		reason(metav1.StatusReasonInternalError, metav1.StatusReasonServerTimeout,
			metav1.StatusReasonTimeout, metav1.StatusReasonServiceUnavailable)(s, told)
}

// tooLarge goes by the cause; servers before 1.19 had only the message.
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

// cutTable says what it means that a request or an answer was cut off. The first
// row that matches counts; what matches none is Unreachable.
var cutTable = []struct {
	what    string
	matches func(err error) bool
	kind    keepwatch.FailureKind
}{
	{"longer than is allowed", as[tooLong], keepwatch.Undecodable},
	{"garbled compression", garbled, keepwatch.Undecodable},
	// The two implementations of HTTP/2 have an error type each, one of them private.
	{"graceful shutdown of the connection", saysAll("http2: server sent GOAWAY", "ErrCode=NO_ERROR"), keepwatch.Ended},
	{"a certificate that does not hold", as[*tls.CertificateVerificationError], keepwatch.Untrusted},
	{"our certificate is refused", saysAll("remote error: tls: ", "certificate"), keepwatch.Unauthorized},
	// From client-go's exec plugin; it is asked again with the next request.
	{"no credentials to be had", saysAll("getting credentials: "), keepwatch.Unauthorized},
}

func kindOfCut(err error) keepwatch.FailureKind {
	for _, row := range cutTable {
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

// saysAll matches errors whose text has every part.
func saysAll(parts ...string) func(error) bool {
	return func(err error) bool {
		text := err.Error()
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	}
}

func garbled(err error) bool {
	return as[flate.CorruptInputError](err) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum)
}

// retryAfter is how long a Retry-After header asks to wait (RFC 9110, 10.2.3:
// seconds or a date); 0 if it does not.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if value == "" {
		return 0
	}
	if wait, ok := seconds(value); ok {
		return wait
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
