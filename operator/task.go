package operator

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator/internal/background"
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

var _ background.Object = (*object)(nil)

// CallTask calls a timer or daemon once, and applies its patch.
func (o *object) CallTask(ctx context.Context, t *background.Task, c background.Call) error {
	e := o.engine
	patch := e.newPatch()
	in := &invocation{
		state: o.newest(), retry: c.Retry, started: c.Started, patch: patch, id: t.ID,
		object: o, stopping: c.Stopping,
	}
	in.apply = func() error {
		out, err := patch.drain()
		if err != nil {
			return err
		}
		return e.apply(ctx, o, out)
	}
	calling := ctx
	if t.Timeout > 0 {
		var cancel context.CancelFunc
		calling, cancel = context.WithDeadlineCause(ctx, c.Started.Add(t.Timeout), errTimeout)
		defer cancel()
	}
	err := e.invokeWith(calling, o, e.background[t.Index], in)
	if failed := in.apply(); err == nil {
		err = failed
	}
	return err
}

// applyTries bounds how often a timer's or daemon's patch is computed again because the
// object changed.
const applyTries = 10

// apply writes a timer's or daemon's patch. A rejection is an error of the handler.
func (e *engine) apply(ctx context.Context, o *object, out write.Outgoing) (err error) {
	for range applyTries {
		state, gone := o.present()
		if gone || out.Empty() {
			return nil
		}
		on := e.writing(state)
		var requests []write.Request
		if requests, err = out.Requests(on); err != nil {
			return err
		}
		var answer *unstructured.Unstructured
		answer, err = e.patch(o, state, requests[0])
		v, _ := write.Judge(requests[0].Type, err)
		if e.statusMoved(o, requests[0].Part, out, &on, v, answer) && v == write.Missing {
			continue
		}
		switch v {
		case write.Accepted:
			o.wrote(revisionOf(answer.Object))
			out = out.Without(requests[0].Part, on)
		case write.Gone:
			return nil
		case write.Stale, write.Missing: // the next state may be the deletion
			o.waitNewer(ctx, revisionOf(state))
		default:
			return err
		}
	}
	return err
}

// TaskJudged logs a verdict.
func (o *object) TaskJudged(t *background.Task, v cycle.Verdict) {
	if v.Err == nil && !t.Daemon {
		return // a timer succeeds too often for a line each
	}
	o.engine.logVerdict(o, t.ID, v, v.Delay >= time.Second)
}

// TaskAbandoned reports a task that does not end, and releases the object.
func (o *object) TaskAbandoned(t *background.Task) {
	e := o.engine
	e.logger.Error("a timer or daemon does not stop; it is abandoned", "object", o.key.String(), "handler", t.ID)
	o.recordEvent(o.newest(), "Warning", "DaemonAbandoned", t.ID+" does not stop")
	e.queue.Add(o.key, 0)
}

// TaskEnded queues the object: it may wait for the end of the task.
func (o *object) TaskEnded(*background.Task) { o.engine.queue.Add(o.key, 0) }

// TaskDied ends the operator.
func (o *object) TaskDied(t *background.Task) {
	o.engine.fail(fmt.Errorf("%s of %s ended its goroutine", t.ID, o.key))
}

// LastChanged is when the desired state last changed.
func (o *object) LastChanged() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastChanged
}

// taskState is a view as tasks see it.
func (e *engine) taskState(g view) background.State {
	return background.State{
		Object: g.state, Live: !g.gone && text(g.state, "deletionTimestamp") == "", Finalized: e.spec.HasFinalizer(g.state),
	}
}
