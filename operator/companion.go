package operator

import (
	"context"
	"fmt"
	"time"
)

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
	e.logger.Error("it was told to stop and does not; it is left to itself", "object", c.object.key.String(), "handler", c.ID)
	c.object.post(state, "Warning", "DaemonAbandoned", c.ID+" was told to stop and does not")
	e.queue.Add(c.object.uid, 0)
}

// accompany runs a companion to its end.
func (e *engine) accompany(c *companion) {
	ended := false
	defer func() {
		if !ended {
			e.fail(fmt.Errorf("%s of %s died", c.ID, c.object.key))
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
