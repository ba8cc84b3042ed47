package operator

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

var errTimeout = errors.New("the handler's timeout has passed")

// call calls a handler and returns its changes. A change that cannot be made is the
// handler's error.
func (e *engine) call(o *object, h *handler, in *invocation, deadline time.Time) (write.Outgoing, error) {
	err := e.invoke(o, h, in, deadline)
	out, impossible := in.patch.drain()
	if err == nil {
		err = impossible
	}
	return out, err
}

// invoke calls a handler. A panic is the handler's error.
func (e *engine) invoke(o *object, h *handler, in *invocation, deadline time.Time) error {
	ctx := e.handling
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, deadline, errTimeout)
		defer cancel()
	}
	return e.invokeWith(ctx, o, h, in)
}

// invokeWith calls a handler, unless Run has returned.
func (e *engine) invokeWith(ctx context.Context, o *object, h *handler, in *invocation) (err error) {
	if e.requests.Err() != nil {
		return context.Cause(e.requests)
	}
	key := o.key
	in.logger = e.logger.With("namespace", key.Namespace, "name", key.Name, "uid", string(o.uid), "handler", h.ID)
	defer e.trackCall(o, h.ID)()
	start := time.Now()
	defer func() {
		e.metrics.called(h.ID, time.Since(start), err)
		if context.Cause(ctx) == errTimeout {
			e.metrics.timeouts.Inc()
		}
	}()
	defer func() {
		if cause := recover(); cause != nil {
			e.metrics.panics.Inc()
			in.logger.Error("a handler panicked", "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	ctx, span := e.trace(ctx, o, h)
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}()
	in.logger.Debug("calling")
	return h.call(ctx, in)
}

// trace begins the span of a call with OpenTelemetry's global provider, which does nothing
// until the program sets one. The handler's context contains the span.
func (e *engine) trace(ctx context.Context, o *object, h *handler) (context.Context, trace.Span) {
	key := o.key
	return otel.Tracer("github.com/keepwatch/keepwatch/operator").Start(ctx, e.name+" "+h.ID, trace.WithAttributes(
		attribute.String("k8s.resource.name", e.name),
		attribute.String("k8s.namespace.name", key.Namespace),
		attribute.String("k8s.object.name", key.Name),
		attribute.String("k8s.object.uid", string(o.uid)),
		attribute.String("keepwatch.handler", h.ID),
	))
}

// trackCall records a running call of a handler, or a request if id is empty, until the returned function is called.
func (e *engine) trackCall(o *object, id string) func() {
	call := &call{o, id}
	e.mu.Lock()
	e.calls[call] = struct{}{}
	e.mu.Unlock()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.calls, call)
	}
}

// call is a running call of a handler, or a request about an object.
type call struct {
	object *object
	id     string // of the handler; "" for a request
}

// request returns the context of a request about an object, which the caller cancels after the answer. It is done after
// requestTimeout, and when Run returns: a request is not cut before, so that a handler's success is recorded even while
// the operator stops.
func (e *engine) request(o *object) (ctx context.Context, cancel func()) {
	ctx, stop := context.WithTimeout(e.requests, requestTimeout)
	untrack := e.trackCall(o, "")
	return ctx, func() {
		untrack()
		stop()
	}
}

// logVerdict logs how a call ended. If the call failed and event is set, it records an Event.
func (e *engine) logVerdict(o *object, id string, v cycle.Verdict, event bool) {
	logger := e.logger.With("object", o.key.String(), "handler", id)
	switch {
	case v.Err == nil:
		logger.Info("handler succeeded")
	case v.Final:
		logger.Error("handler failed permanently", "error", v.Err)
		o.recordEvent(o.newest(), "Warning", "HandlerFailed", fmt.Sprintf("%s failed permanently: %v", id, v.Err))
	default:
		logger.Warn("handler failed and will be called again", "in", v.Delay, "error", v.Err)
		if !event {
			return
		}
		o.recordEvent(o.newest(), "Warning", "HandlerRetried", fmt.Sprintf("%s failed and will be called again: %v", id,
			v.Err))
	}
}
