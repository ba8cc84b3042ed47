package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// errNotStored: the server accepted progress and dropped it, as it does with fields that the
// resource's schema does not know, or a webhook removed it. Without progress, handlers would be called forever.
var errNotStored = errors.New(
	"the server accepts progress and does not store it; does the schema preserve unknown fields in the status, and does no webhook remove annotations?")

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// refresh reads the object from the server, because the source does not deliver the last own write in time. The old
// state has outdated progress. It reports missing if the server does not have the object: the source delivers the
// deletion soon, unless the answer was wrong; see write.Missing.
func (e *engine) refresh(o *object, g view) (fresh view, missing bool, err error) {
	ctx, cancel := e.request(o)
	defer cancel()
	answer, err := e.api.get(ctx, g.state)
	switch {
	case apierrors.IsNotFound(err):
		return g, true, nil
	case err != nil:
		return g, false, fmt.Errorf("read the object, whose last write the informer does not deliver: %w", err)
	case keepwatch.UID(answer.GetUID()) != o.uid:
		return g, true, nil
	}
	o.adopt(answer.Object)
	fresh = o.view()
	o.requeue(fresh) // later events are handled in their turn
	return fresh, false, nil
}

// send sends the pending writes for the newest state. done is false if some are still
// pending, or were dropped; next is when to continue then.
func (e *engine) send(o *object, g view) (next time.Time, done bool) {
	out := o.pending
	newest, gone := o.present()
	if gone {
		o.pending = nil
		return time.Time{}, false
	}
	if out.step && e.hasCondition(newest) {
		if out.Edits.Annotations == nil {
			out.Edits.Annotations = map[string]*string{}
		}
		out.Edits.Annotations[e.spec.Keys.Condition(newest)] = nil
	}
	on := e.writing(newest)
	for {
		requests, err := out.Requests(on)
		if err != nil {
			o.pending = nil
			return e.throttle(o, err), false
		}
		if len(requests) == 0 {
			break
		}
		answer, err := e.patch(o, g.state, requests[0])
		if e.requests.Err() != nil {
			return time.Time{}, false // another process calls the handler again, unless the patch was accepted
		}
		verdict, asked := write.Judge(requests[0].Type, err)
		if e.statusMoved(o, requests[0].Part, out.Outgoing, &on, verdict, answer) && verdict == write.Missing {
			continue
		}
		switch verdict {
		case write.Accepted:
			o.wrote(revisionOf(answer.Object))
			if !out.Stored(requests[0].Part, on, answer.Object) {
				o.pending = nil
				next := e.throttle(o, errNotStored)
				e.reportObstacle(o, g, errNotStored)
				return next, false
			}
			out.Outgoing = out.Without(requests[0].Part, on)
			on.State = answer.Object
		case write.Gone:
			o.pending = nil
			return time.Time{}, false
		case write.Rejected:
			o.pending = nil
			next := e.throttle(o, err)
			e.reportRejection(o, out, g, err)
			return next, false
		default:
			return e.postpone(o, verdict, revisionOf(on.State), asked, err), false
		}
	}
	return e.sent(o, out)
}

func (e *engine) writing(state map[string]any) write.Object {
	return write.Object{State: state, Finalizer: e.set.finalizer, Subresource: e.status.get()}
}

// sent records that all pending writes were accepted.
func (e *engine) sent(o *object, out *outgoing) (next time.Time, done bool) {
	o.pending = nil
	if out.completed {
		o.complete()
	} else if out.begun {
		o.begun = true
	}
	*o.reported(out) = ""
	if out.step {
		o.throttle, o.staleRevision = throttle.Throttle{}, 0
		o.progressWritten = time.Now()
	}
	return time.Time{}, true
}

func revisionOf(state map[string]any) keepwatch.Revision {
	r, _ := keepwatch.ParseRevision(text(state, "resourceVersion"))
	return r
}

// postpone delays the pending writes until a newer state is delivered, or for a wait.
func (e *engine) postpone(o *object, v write.Verdict, at keepwatch.Revision, asked time.Duration, err error) time.Time {
	now := time.Now()
	o.throttle, o.staleRevision = o.throttle.FailedRetryAfter(now, asked), 0
	if v == write.Stale {
		o.staleRevision = at
	}
	level := slog.LevelWarn
	if v == write.Missing { // most often it was deleted
		level = slog.LevelInfo
	}
	e.logger.Log(context.Background(), level, "a patch was not accepted; it is sent again", "object", o.key.String(),
		"wait", o.throttle.Wait(now).Round(time.Millisecond), "error", err)
	return o.throttle.Until()
}

// patch sends one request, unless Run has returned.
func (e *engine) patch(o *object, state map[string]any, r write.Request) (*unstructured.Unstructured, error) {
	if e.requests.Err() != nil {
		return nil, context.Cause(e.requests)
	}
	ctx, cancel := e.request(o)
	defer cancel()
	answer, err := e.api.patch(ctx, state, r)
	e.metrics.patched(err)
	return answer, err
}
