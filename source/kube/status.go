package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// statusOf returns the Status of an error response. It makes one if the response has none,
// for example because a proxy sent it.
func statusOf(resp *http.Response, text []byte) *metav1.Status {
	raw := rawObject{text: text}
	if encodingOf(resp.Header) == Protobuf {
		raw, _ = unwrapUnknown(text)
	}
	s, ok := raw.status()
	switch {
	case ok:
	case resp.StatusCode == http.StatusNotFound: // for a missing group or version the server sends no Status
		s = &metav1.Status{Reason: metav1.StatusReasonNotFound, Message: "the server could not find the requested resource"}
	default:
		generic := apierrors.NewGenericServerResponse(resp.StatusCode, "", schema.GroupResource{}, "", "", 0, false)
		s = &metav1.Status{Reason: generic.ErrStatus.Reason, Message: resp.Status + snippet(resp.Header, text)}
	}
	if s.Code == 0 {
		s.Code = int32(resp.StatusCode)
	}
	return s
}

// parseStatus reads the text of a Status, and reports whether it is one.
func parseStatus(text []byte) (*metav1.Status, bool) {
	var s metav1.Status
	if err := json.Unmarshal(text, &s); err != nil || s.Kind != "Status" {
		return nil, false
	}
	return &s, true
}

// snippet returns the first line of a plain text for a message.
func snippet(h http.Header, text []byte) string {
	if !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	const longest = 200
	if len(line) > longest {
		line = line[:longest] + "…"
	}
	if line == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(line, "")
}

// statusFailure returns the failure of a Status. header is the wait of the Retry-After
// header.
func (x *exchange) statusFailure(s *metav1.Status, header time.Duration) *keepwatch.Failure {
	wait := header
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		wait = max(wait, time.Duration(s.Details.RetryAfterSeconds)*time.Second)
	}
	wait = min(wait, maxRetryAfter)
	kind := kindOfStatus(s, wait > 0)
	s.Message = cmp.Or(s.Message, string(s.Reason), fmt.Sprintf("status %d", s.Code))
	err := refused{fmt.Errorf("%s: %w", x.op, &apierrors.StatusError{ErrStatus: *s})}
	return &keepwatch.Failure{Kind: kind, RetryAfter: wait, Err: err}
}

// refused is the error of a request to which the server has answered with a Status. It does not wrap the Status: the
// clients of a server that reads through a source would take it for the answer to their own requests.
type refused struct{ err error }

func (r refused) Error() string { return r.err.Error() }

// WithStatus returns an error of a source in the form that a client of client-go returns: if the server has answered
// with a Status, errors.As and apierrors.Is… find it.
func WithStatus(err error) error {
	if r, ok := errors.AsType[refused](err); ok {
		return r.err
	}
	return err
}

// transportFailure returns the failure of an interrupted exchange: the caller canceled it,
// the server was idle, or the connection failed.
func (x *exchange) transportFailure(err error) *keepwatch.Failure {
	if ended := x.callerCtx.Err(); ended != nil {
		if cause := context.Cause(x.callerCtx); cause != ended {
			ended = fmt.Errorf("%w: %w", cause, ended)
		}
		return keepwatch.Failed(keepwatch.Unreachable, "%s: %w", x.op, ended)
	}
	if x.cancelCause() == errIdle {
		return keepwatch.Failed(keepwatch.Idle, "%s: %w for %v", x.op, errIdle, x.idle.limit)
	}
	return keepwatch.Failed(kindOfTransportError(err), "%s: %w", x.op, err)
}

// maxRetryAfter bounds RetryAfter of failures.
const maxRetryAfter = 24 * time.Hour

// parseSeconds parses a number of seconds.
func parseSeconds(value string) (time.Duration, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0, false
	}
	return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second, true
}
