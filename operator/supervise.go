package operator

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// supervise calls a timer or daemon repeatedly. It reports whether it has ended for the
// lifetime of this process.
func (e *engine) supervise(c *daemon) (settled bool) {
	if !c.pause(c.delay) {
		return false
	}
	var crashes throttle.Throttle
	retry, started := 0, time.Now()
	for {
		if !c.idleLong() {
			return false
		}
		begun := time.Now()
		err := e.callDaemon(c, retry, started)
		now := time.Now()
		if c.isStopped() {
			return false
		}
		v := c.Judge(err, retry, now.Sub(started))
		e.logDaemonVerdict(c, v, now)
		switch {
		case v.Final && (v.Err != nil || c.daemon):
			return true
		case v.Final:
			if !c.pause(c.wait(begun, now)) {
				return false
			}
			retry, started, crashes = 0, time.Now(), throttle.Throttle{}
		default:
			wait := v.Delay
			if after := new(cycle.RetryAfter); c.daemon && !c.paced && !errors.As(err, &after) {
				if now.Sub(begun) > crashes.Wait(begun)+time.Minute {
					crashes = throttle.Throttle{} // it has run for more than a minute
				}
				crashes = crashes.Failed(now)
				wait = crashes.Wait(now)
			}
			retry++
			if !c.pause(wait) {
				return false
			}
		}
	}
}

// wait returns how long a timer waits after a success.
func (c *daemon) wait(begun, now time.Time) time.Duration {
	if !c.sharp {
		return c.interval
	}
	return c.interval - now.Sub(begun)%c.interval
}

// pause waits, and reports whether to go on.
func (c *daemon) pause(wait time.Duration) bool {
	if wait <= 0 {
		return !c.isStopped()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return !c.isStopped()
	case <-c.stopping:
		return false
	}
}

// idleLong waits until the object has been idle for long enough.
func (c *daemon) idleLong() bool {
	for {
		c.object.mu.Lock()
		wait := time.Until(c.object.lastChanged.Add(c.idle))
		c.object.mu.Unlock()
		if c.idle == 0 || wait <= 0 {
			return !c.isStopped()
		}
		if !c.pause(wait) {
			return false
		}
	}
}

func (c *daemon) isStopped() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

// callCompanion calls a timer or daemon once, and applies its patch.
func (e *engine) callDaemon(c *daemon, retry int, started time.Time) error {
	patch := e.newPatch()
	in := &invocation{
		state: c.object.newest(), retry: retry, started: started, patch: patch, id: c.ID,
		object: c.object, stopping: c.stopping,
	}
	in.apply = func() error {
		out, err := patch.take()
		if err != nil {
			return err
		}
		return e.apply(c, out)
	}
	ctx := c.ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, started.Add(c.Timeout), errTimeout)
		defer cancel()
	}
	err := e.invokeWith(ctx, c.object, &c.handler, in)
	if failed := in.apply(); err == nil {
		err = failed
	}
	return err
}

// applyTries is how often a timer's or daemon's patch is made anew because the object
// has changed meanwhile.
const applyTries = 10

// apply writes what a timer or daemon wants: what the server does not take is an error
// of the handler.
func (e *engine) apply(c *daemon, out write.Outgoing) (err error) {
	for range applyTries {
		state, gone := c.object.present()
		if gone || out.Empty() {
			return nil
		}
		var requests []write.Request
		if requests, err = out.Requests(e.writing(state)); err != nil {
			return err
		}
		var answer *unstructured.Unstructured
		answer, err = e.patch(state, requests[0])
		switch v, _ := write.Judge(requests[0].Type, err); v {
		case write.Accepted:
			c.object.wrote(revisionOf(answer.Object))
			out = out.Without(requests[0].Part, e.writing(state))
		case write.Gone:
			return nil
		case write.Stale:
			c.object.newer(c.ctx, revisionOf(state))
		default:
			return err
		}
	}
	return err
}

func (e *engine) logDaemonVerdict(c *daemon, v cycle.Verdict, now time.Time) {
	if v.Err == nil && !c.daemon {
		return // a timer that does what it should is not worth a line each time
	}
	e.logVerdict(c.object, &c.handler, v, now)
}
