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

// exchange is one request and its response. Its failures begin with op.
type exchange struct {
	op         string          // "list pods"
	callerCtx  context.Context // the caller's
	requestCtx context.Context // of the request; its cause is why this side canceled it
	idle       *idleTimer
	body       *body

	encoding Encoding // of the response
}

// maxStatus bounds the body of an error response.
const maxStatus = 64 << 10

// get requests the resource. A failure is the server's or the connection's. The caller
// closes the exchange's body.
func (s *Source) get(ctx context.Context, op string, accept string, query url.Values) (*exchange, *keepwatch.Failure) {
	requestCtx, cancel := context.WithCancelCause(ctx)
	idle := &idleTimer{limit: s.idleTimeout, cancel: cancel}
	x := &exchange{op: op + " " + s.name, callerCtx: ctx, requestCtx: requestCtx, idle: idle}
	endpoint := s.endpoint
	endpoint.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(requestCtx, http.MethodGet, endpoint.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, keepwatch.Failed(keepwatch.Rejected, "%s: %w", x.op, err)
	}
	req.Header.Set("Accept", accept)

	idle.start()
	resp, err := s.client.Do(req)
	idle.stop()
	if err != nil {
		defer cancel(nil)
		return nil, x.requestFailure(err)
	}
	x.body = &body{ReadCloser: resp.Body, idle: idle, cancel: cancel, limit: s.maxObject, allowed: s.maxObject}
	if s.protobuf {
		x.encoding = encodingOf(resp.Header)
	}
	if resp.StatusCode != http.StatusOK {
		defer x.body.close()
		x.body.allowed = maxStatus
		text, _ := io.ReadAll(x.body) // an incomplete Status is still used
		return nil, x.statusFailure(statusOf(resp, text), retryAfter(resp.Header, time.Now()))
	}
	return x, nil
}

// requestFailure returns the failure of a request without a response.
func (x *exchange) requestFailure(err error) *keepwatch.Failure {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the address, which is long and always the same
	}
	failure := x.transportFailure(err)
	if failure.Kind == keepwatch.Ended {
		failure.Kind = keepwatch.Unreachable // a request that got no response did not end cleanly
	}
	return failure
}

// readFailure returns the failure of a response at which a decoder stopped with err. If err
// is the error of the body, the connection failed; otherwise the text is invalid, whatever
// error followed it.
func (x *exchange) readFailure(err error) *keepwatch.Failure {
	if end := x.body.err; end != io.EOF && errors.Is(err, end) {
		return x.transportFailure(end)
	}
	if x.cancelCause() != nil {
		return x.transportFailure(err)
	}
	return keepwatch.Failed(keepwatch.Undecodable, "%s: unreadable response: %w", x.op, err)
}

// contentFailure returns the failure of a response that was read up to err, an error of
// the text or of its content.
func (x *exchange) contentFailure(err error) *keepwatch.Failure {
	if u := (unversioned{}); errors.As(err, &u) {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%s: %w", x.op, u)
	}
	if v := (violation{}); errors.As(err, &v) {
		return keepwatch.Failed(keepwatch.ProtocolViolation, "%s: %w", x.op, v.error)
	}
	if u := (decodeError{}); errors.As(err, &u) {
		return keepwatch.Failed(keepwatch.Undecodable, "%s: %w", x.op, u.error)
	}
	return x.readFailure(err)
}

// cancelCause returns why this side canceled the request, nil if it did not.
func (x *exchange) cancelCause() error { return context.Cause(x.requestCtx) }
