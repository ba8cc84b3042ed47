package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/keepwatch/keepwatch"
)

// exchange is one request and its answer. Its failures begin with what was being
// done.
type exchange struct {
	op      string          // "list pods"
	ctx     context.Context // the caller's
	own     context.Context // of the request; its cause tells why we gave it up
	silence *silence
	body    *body

	encoding Encoding // of the answer
}

// maxStatus bounds the body of an answer that is an error.
const maxStatus = 64 << 10

// get asks for the resource. A failure is one of the server's or of the way to
// it; the body of an exchange has to be closed.
func (s *Source) get(ctx context.Context, op string, accept string, query url.Values) (*exchange, *keepwatch.Failure) {
	own, cancel := context.WithCancelCause(ctx)
	quiet := &silence{limit: s.idleTimeout, cancel: cancel}
	x := &exchange{op: op + " " + s.name, ctx: ctx, own: own, silence: quiet}
	target := s.target
	target.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(own, http.MethodGet, target.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, keepwatch.Failed(keepwatch.Rejected, "%s: %w", x.op, err)
	}
	req.Header.Set("Accept", accept)

	quiet.begin()
	resp, err := s.client.Do(req)
	quiet.end()
	if err != nil {
		defer cancel(nil)
		return nil, x.unsent(err)
	}
	x.body = &body{ReadCloser: resp.Body, silence: quiet, cancel: cancel, limit: s.maxObject, until: s.maxObject}
	if s.protobuf {
		x.encoding = encodingOf(resp.Header)
	}
	if resp.StatusCode != http.StatusOK {
		defer x.body.close()
		x.body.until = maxStatus
		text, _ := io.ReadAll(x.body) // what can't be read of it is not missed
		return nil, x.judge(statusOf(resp, text), retryAfter(resp.Header, time.Now()))
	}
	return x, nil
}

// unsent is the failure of a request that got no answer.
func (x *exchange) unsent(err error) *keepwatch.Failure {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the address, which is long and the same every time
	}
	failure := x.cut(err)
	if failure.Kind == keepwatch.Ended {
		failure.Kind = keepwatch.Unreachable // what has not begun can't end cleanly
	}
	return failure
}

// unread is the failure of an answer at which a decoder stopped with err: it met
// the end of the answer, if that is what err tells of, or else the text is wrong,
// whatever end the answer had behind it.
func (x *exchange) unread(err error) *keepwatch.Failure {
	if end := x.body.err; end != io.EOF && errors.Is(err, end) {
		return x.cut(end)
	}
	if x.given() != nil {
		return x.cut(err)
	}
	return keepwatch.Failed(keepwatch.Undecodable, "%s: unreadable answer: %w", x.op, err)
}

// unfit is the failure of an answer that was read up to err, which may be of
// the text or of what it says.
func (x *exchange) unfit(err error) *keepwatch.Failure {
	if v := (violation{}); errors.As(err, &v) {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%s: %w", x.op, v.error)
	}
	if u := (undecoded{}); errors.As(err, &u) {
		return keepwatch.Failed(keepwatch.Undecodable, "%s: %w", x.op, u.error)
	}
	return x.unread(err)
}

// given is why we gave the exchange up ourselves, nil if we did not.
func (x *exchange) given() error { return context.Cause(x.own) }
