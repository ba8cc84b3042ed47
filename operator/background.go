package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// background is a declared timer or daemon.
type background struct {
	handler
	schedule
	daemon bool
	paced  bool // Backoff was set
}

// schedule is when timers and daemons run and how they end.
type schedule struct {
	interval, idle, delay time.Duration
	sharp                 bool
	warning, grace        time.Duration
}

const defaultGrace = 30 * time.Second

// Timer declares a handler that is called for each object all the time: at once, and
// then an interval after each success. After an error it is called as the error
// and the options say. It is never called twice at a time for an object.
func Timer[T metav1.Object](op *Operator, interval time.Duration, f Func[T], options ...HandlerOption) {
	b := inBackground(op, f, "timer", options)
	b.interval = interval
	if interval <= 0 {
		op.errs = append(op.errs, fmt.Errorf("timer %q: the interval must be positive", b.ID))
	}
	op.background = append(op.background, b)
}

// Daemon declares a handler that runs as long as an object exists and passes the
// filter. Returning nil, it has come to its end until the operator starts again;
// after an error it is called again. It ends in this order: [Request.Stopping] is
// closed; its context ends; it is given up, and that is reported. A finalizer holds
// the object until then.
func Daemon[T metav1.Object](op *Operator, f Func[T], options ...HandlerOption) {
	b := inBackground(op, f, "daemon", options)
	b.daemon = true
	op.background = append(op.background, b)
}

// Idle has a timer wait until the object's essence has not changed for so long.
func Idle(t time.Duration) HandlerOption { return func(d *declaration) { d.idle = t } }

// InitialDelay is the wait before the first call of a timer or daemon in this process.
func InitialDelay(t time.Duration) HandlerOption { return func(d *declaration) { d.delay = t } }

// Sharp has a timer's interval count from the beginning of a call, not from its end.
func Sharp() HandlerOption { return func(d *declaration) { d.sharp = true } }

// StopGrace is how long a daemon has after [Request.Stopping] was closed before its
// context ends, and then before it is given up. The default is none, and 30 s.
func StopGrace(warning, grace time.Duration) HandlerOption {
	return func(d *declaration) { d.warning, d.grace = warning, grace }
}

func inBackground[T metav1.Object](op *Operator, f Func[T], what string, options []HandlerOption) *background {
	d := describe[T](op, f, what, options)
	call := declare(op, 0, f, append(options, ID(d.ID))).call
	return &background{handler: handler{d.Handler, call}, schedule: d.schedule, paced: d.paced}
}

// companion is a timer or daemon of one object while it runs.
type companion struct {
	*background
	object    *object
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stopping  chan struct{}
	stopped   bool // stopping is closed
	abandoned bool
	timers    []*time.Timer // of the stop
}

// wants reports whether a timer or daemon is to run for an object.
func (b *background) wants(o *object, g glance) bool {
	return !g.gone && text(g.state, "deletionTimestamp") == "" && b.Filter.Matches(g.state) && !o.isSettled(b)
}

func (o *object) isSettled(b *background) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled[b]
}

// attended reports whether daemons are to run for an object.
func (e *engine) attended(o *object, g glance) bool {
	for _, b := range e.background {
		if b.daemon && b.wants(o, g) {
			return true
		}
	}
	return false
}

// attend starts and stops the timers and daemons of an object. One that was stopped
// starts again when it has ended, never beside itself.
func (e *engine) attend(o *object, g glance) {
	for _, b := range e.background {
		wanted := b.wants(o, g)
		if wanted && b.daemon && !e.spec.Finalized(g.state) {
			wanted = false // the finalizer comes first, or its end could be missed
		}
		o.mu.Lock()
		c := o.running[b]
		switch {
		case c != nil && !wanted && !o.isKept(b, g):
			c.stop(ErrUnwanted)
		case c == nil && wanted:
			e.start(o, b)
		}
		o.mu.Unlock()
	}
}

// isKept reports whether a running daemon goes on although its finalizer is gone, for
// example because somebody has removed it. o.mu is held.
func (o *object) isKept(b *background, g glance) bool {
	return b.daemon && !g.gone && text(g.state, "deletionTimestamp") == "" && b.Filter.Matches(g.state)
}

// start starts a timer or daemon; o.mu is held.
func (e *engine) start(o *object, b *background) {
	c := &companion{background: b, object: o, stopping: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(e.handling)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		c.cancel(ErrStopped)
		return
	}
	o.running[b] = c
	e.companions.Go(func() { e.accompany(c) })
}

// stop asks for the end of a companion; o.mu is held.
func (c *companion) stop(why error) {
	if c.stopped {
		return
	}
	c.stopped = true
	close(c.stopping)
	c.timers = append(c.timers,
		time.AfterFunc(c.warning, func() { c.cancel(why) }),
		time.AfterFunc(c.warning+c.grace, c.abandon))
}

// abandon gives up a companion that does not end.
func (c *companion) abandon() {
	c.object.mu.Lock()
	c.abandoned = true
	state := c.object.state
	c.object.mu.Unlock()
	e := c.object.engine
	e.logger.Error("it was told to stop and does not; it is left to itself", "object", c.object.key().String(), "handler", c.ID)
	c.object.post(state, "Warning", "DaemonAbandoned", c.ID+" was told to stop and does not")
	e.queue.Add(c.object.uid, 0)
}

// accompany runs a companion to its end.
func (e *engine) accompany(c *companion) {
	ended := false
	defer func() {
		if !ended {
			e.fail(fmt.Errorf("%s of %s died", c.ID, c.object.key()))
		}
	}()
	settled := e.supervise(c)
	c.cancel(nil)
	o := c.object
	o.mu.Lock()
	for _, t := range c.timers {
		t.Stop()
	}
	delete(o.running, c.background)
	if settled {
		o.settled[c.background] = true
	}
	o.mu.Unlock()
	ended = true
	e.queue.Add(o.uid, 0)
}

// supervise calls a companion again and again. It reports whether that is over for
// as long as this process lives.
func (e *engine) supervise(c *companion) (settled bool) {
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
		err := e.callCompanion(c, retry, started)
		now := time.Now()
		if c.isStopped() {
			return false
		}
		v := c.Judge(err, retry, now.Sub(started))
		e.toldCompanion(c, v, now)
		switch {
		case v.Final && (v.Err != nil || c.daemon):
			return true
		case v.Final:
			if !c.pause(c.rest(begun, now)) {
				return false
			}
			retry, started, crashes = 0, time.Now(), throttle.Throttle{}
		default:
			wait := v.Delay
			if plain := new(cycle.Temporary); c.daemon && !c.paced && !errors.As(err, &plain) {
				if now.Sub(begun) > crashes.Wait(begun)+time.Minute {
					crashes = throttle.Throttle{} // it has run for a while
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

// rest is how long a timer rests after a success.
func (c *companion) rest(begun, now time.Time) time.Duration {
	if !c.sharp {
		return c.interval
	}
	return c.interval - now.Sub(begun)%c.interval
}

// pause waits, and reports whether to go on.
func (c *companion) pause(wait time.Duration) bool {
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
func (c *companion) idleLong() bool {
	for {
		c.object.mu.Lock()
		wait := time.Until(c.object.touched.Add(c.idle))
		c.object.mu.Unlock()
		if c.idle == 0 || wait <= 0 {
			return !c.isStopped()
		}
		if !c.pause(wait) {
			return false
		}
	}
}

func (c *companion) isStopped() bool {
	select {
	case <-c.stopping:
		return true
	default:
		return false
	}
}

// callCompanion calls a timer or daemon once, and applies its patch.
func (e *engine) callCompanion(c *companion, retry int, started time.Time) error {
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
func (e *engine) apply(c *companion, out write.Outgoing) (err error) {
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
		case write.Taken:
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

func (e *engine) toldCompanion(c *companion, v cycle.Verdict, now time.Time) {
	if v.Err == nil && !c.daemon {
		return // a timer that does what it should is not worth a line each time
	}
	e.told(c.object, &c.handler, v, now)
}
