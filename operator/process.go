package operator

import (
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// processOrThrottle processes an object, and throttles it after errors and panics outside
// of its handlers. It returns when to process it again; the zero time means at its next
// change.
func (e *engine) processOrThrottle(o *object, now time.Time) (next time.Time) {
	defer func() {
		if cause := recover(); cause != nil {
			e.metrics.panics.Inc()
			next = e.throttle(o, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
			e.metrics.ended(o.failed, next, time.Since(now))
		}
	}()
	o.failed = false
	g := o.view()
	if g.state == nil {
		o.requeue(g)
		return time.Time{} // the object is idle
	}
	if wait := o.throttledUntil(g, now); !wait.IsZero() {
		o.requeue(g)
		return wait
	}
	next, err := e.process(o, g, now)
	if errors.Is(err, errInvariantViolated) {
		e.fail(fmt.Errorf("%s of %s: %w", o.key, e.name, err))
		return time.Time{}
	}
	if err != nil && e.requests.Err() != nil {
		return time.Time{} // Run has returned
	}
	if err != nil {
		next = e.throttle(o, err)
		e.reportObstacle(o, g, err)
	}
	e.metrics.ended(o.failed, next, time.Since(now))
	if next.IsZero() {
		next = o.unsettled(time.Now())
	}
	if next.IsZero() && o.pending == nil {
		o.release(g)
	}
	return next
}

// throttledUntil returns the end of the object's throttle; the zero time if it is over, or
// if the object waited for a newer state and has one.
func (o *object) throttledUntil(g view, now time.Time) time.Time {
	if o.throttle.Wait(now) == 0 || o.staleRevision > 0 && g.revision > o.staleRevision || g.gone {
		return time.Time{}
	}
	return o.throttle.Until()
}

// throttle delays an object after an error.
func (e *engine) throttle(o *object, err error) time.Time {
	o.throttle, o.staleRevision, o.failed = o.throttle.Failed(time.Now()), 0, true
	e.logger.Error("the object cannot be handled; it is tried again after a wait", "object", o.key.String(),
		"wait", o.throttle.Wait(time.Now()).Round(time.Millisecond), "error", err)
	return o.throttle.Until()
}

// process performs the next step for an object.
func (e *engine) process(o *object, g view, now time.Time) (time.Time, error) {
	if g.gone {
		o.pending = nil
	}
	if o.pending != nil {
		if next, done := e.send(o, g); !done {
			o.requeue(g)
			return next, nil
		}
	}
	if g.hasEvent {
		if next, done := e.callEventHandlers(o, g); !done {
			return next, nil
		}
	}
	o.tasks.Sync(e.taskState(g))
	if outdated, settle := o.outdated(g); outdated && now.Before(settle) {
		return settle, nil
	} else if outdated && !g.gone {
		var missing bool
		var err error
		if g, missing, err = e.refresh(o, g); err != nil {
			return time.Time{}, err
		}
		if missing {
			return now.Add(settleTime), nil
		}
	}
	p, err := e.spec.Plan(o.seen(g), now)
	if err != nil {
		return time.Time{}, err
	}
	return e.perform(o, g, p)
}

// perform performs a plan's step.
func (e *engine) perform(o *object, g view, p cycle.Plan) (time.Time, error) {
	switch step := p.Step.(type) {
	case cycle.Idle:
		if step.Completed {
			o.complete()
		}
		return e.clearCondition(o, g), nil
	case cycle.AwaitTasks:
		return time.Time{}, nil // the end of each task queues the object
	case cycle.Sleep:
		return step.Until, nil
	case cycle.Write:
		o.pending = &outgoing{completed: step.Completed, step: true}
		o.pending.Edits = step.Edits
		next, _ := e.send(o, g)
		return next, nil
	case cycle.Refuse:
		return time.Time{}, step.Err
	case cycle.Call:
		return e.callHandler(o, g, p, step)
	}
	return time.Time{}, fmt.Errorf("%w: step %T", errInvariantViolated, p.Step)
}

// callHandler calls the handler of a plan, and writes the result.
func (e *engine) callHandler(o *object, g view, p cycle.Plan, step cycle.Call) (time.Time, error) {
	h := e.handlers[step.Index]
	patch := e.newPatch()
	in := &invocation{
		state: g.state, cause: Cause(step.Purpose.String()), old: p.Old, diff: p.DiffOf(step.Handler),
		retry: step.Retry, started: step.Started, patch: patch, id: h.ID, object: o,
	}
	out, err := e.call(o, h, in, deadlineOf(step))
	if e.handling.Err() != nil && err != nil || e.requests.Err() != nil {
		return time.Time{}, nil // the operator stops; another process calls the handler again
	}
	now := time.Now()
	verdict := step.Handler.Judge(err, step.Retry, now.Sub(step.Started))
	if verdict.Err != nil {
		o.failed = true
		if verdict.Final {
			e.metrics.terminal.Inc()
		}
	}
	after := p.Called(step, verdict, now)
	_, deferred := after.(cycle.Defer)
	e.logVerdict(o, h.ID, verdict, !deferred)
	return e.record(o, g, out, after, step.Purpose == cycle.Resume)
}

// record writes or defers the progress after a call, and writes the handler's changes.
func (e *engine) record(o *object, g view, out write.Outgoing, after cycle.Step, resumed bool) (time.Time, error) {
	switch after := after.(type) {
	case cycle.Write:
		out.Edits = after.Edits
		o.pending = &outgoing{Outgoing: out, completed: after.Completed, begun: resumed, step: true}
		next, _ := e.send(o, g)
		return next, nil
	case cycle.Defer:
		o.deferRecord(after)
		if out.Empty() {
			return after.Record.Delayed, nil
		}
		o.pending = &outgoing{Outgoing: out, step: true}
		if next, done := e.send(o, g); !done {
			return next, nil
		}
		return after.Record.Delayed, nil // a patch that changes nothing causes no event
	}
	return time.Time{}, fmt.Errorf("%w: step %T after a call", errInvariantViolated, after)
}

func deadlineOf(step cycle.Call) time.Time {
	if step.Handler.Timeout == 0 {
		return time.Time{}
	}
	return step.Started.Add(step.Handler.Timeout)
}

// callEventHandlers calls the handlers of events. Their errors are logged.
func (e *engine) callEventHandlers(o *object, g view) (next time.Time, done bool) {
	if len(e.events) == 0 {
		return time.Time{}, true
	}
	patch := e.newPatch()
	for _, h := range e.events {
		if !h.Filter.Matches(g.state) {
			continue
		}
		if e.requests.Err() != nil {
			return time.Time{}, false // Run has returned
		}
		in := &invocation{state: g.state, event: g.event, started: time.Now(), patch: patch, id: h.ID, object: o}
		if err := e.invoke(o, h, in, time.Time{}); err != nil {
			e.logger.Error("an event handler failed", "handler", h.ID, "object", o.key.String(), "error", err)
		}
	}
	out, err := patch.drain()
	if err != nil {
		e.logger.Error("the changes of an event handler cannot be written", "object", o.key.String(), "error", err)
		return time.Time{}, true
	}
	if g.gone || out.Empty() {
		return time.Time{}, true
	}
	o.pending = &outgoing{Outgoing: out}
	return e.send(o, g)
}

func (e *engine) newPatch() *Patch {
	return &Patch{prefix: e.set.prefix, progress: e.set.progressStore}
}
