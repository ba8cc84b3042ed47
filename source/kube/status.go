package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// statusOf reads an answer that is an error: a Status, or what a proxy on the
// way says in its own manner.
func statusOf(resp *http.Response, text []byte) *metav1.Status {
	d := draft{text: text}
	if encodingOf(resp.Header) == Protobuf {
		d, _ = unwrapUnknown(text)
	}
	s, ok := d.status()
	switch {
	case ok:
	case resp.StatusCode == http.StatusNotFound: // a group or version that is not there has no Status
		s = &metav1.Status{Message: "the server could not find the requested resource"}
	default:
		s = &metav1.Status{Message: resp.Status + snippet(resp.Header, text)}
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

// snippet is the first line of a plain text, for people.
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

// judge makes a failure of what the server said. header is how long its headers
// ask to wait.
func (x *exchange) judge(s *metav1.Status, header time.Duration) *keepwatch.Failure {
	wait := header
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		wait = max(wait, time.Duration(s.Details.RetryAfterSeconds)*time.Second)
	}
	wait = min(wait, maxWait)
	message := cmp.Or(s.Message, string(s.Reason), fmt.Sprintf("status %d", s.Code))
	failure := keepwatch.Failed(kindOfStatus(s, wait > 0), "%s: %s", x.op, message)
	failure.RetryAfter = wait
	return failure
}

// cut makes a failure of what broke the exchange off: the caller, our patience,
// or the way to the server.
func (x *exchange) cut(err error) *keepwatch.Failure {
	if ended := x.ctx.Err(); ended != nil {
		if cause := context.Cause(x.ctx); cause != ended {
			ended = fmt.Errorf("%w: %w", cause, ended)
		}
		return keepwatch.Failed(keepwatch.Unreachable, "%s: %w", x.op, ended)
	}
	if x.given() == errIdle {
		return keepwatch.Failed(keepwatch.Idle, "%s: %w for %v", x.op, errIdle, x.silence.limit)
	}
	return keepwatch.Failed(kindOfCut(err), "%s: %w", x.op, err)
}

// maxWait is the longest wait that is passed on; nobody is going to wait so long.
const maxWait = 24 * time.Hour

// seconds reads a number of seconds.
func seconds(value string) (time.Duration, bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0, false
	}
	return time.Duration(min(n, uint64(maxWait/time.Second))) * time.Second, true
}
