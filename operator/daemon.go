package operator

import (
	"context"
	"fmt"
	"time"
)

// daemon is a running timer or daemon of one object.
type daemon struct {
	*background
	object    *object
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stopping  chan struct{}
	stopped   bool // stopping is closed
	abandoned bool
	timers    []*time.Timer // of the stop
}

// wants reports whether a timer or daemon should run for an object.
func (b *background) wants(o *object, g view) bool {
	return !g.gone && text(g.state, "deletionTimestamp") == "" && b.Filter.Matches(g.state) && !o.isSettled(b)
}

func (o *object) isSettled(b *background) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.settled[b]
}

// wantsDaemon reports whether daemons should run for an object.
func (e *engine) wantsDaemon(o *object, g view) bool {
	for _, b := range e.background {
		if b.daemon && b.wants(o, g) {
			return true
		}
	}
	return false
}

// syncDaemons starts and stops the timers and daemons of an object. A stopped one starts
// again only after it has ended.
func (e *engine) syncDaemons(o *object, g view) {
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

// isKept reports whether a running daemon continues without its finalizer, for example
// because a client removed it. The caller holds o.mu.
func (o *object) isKept(b *background, g view) bool {
	return b.daemon && !g.gone && text(g.state, "deletionTimestamp") == "" && b.Filter.Matches(g.state)
}

// start starts a timer or daemon. The caller holds o.mu.
func (e *engine) start(o *object, b *background) {
	c := &daemon{background: b, object: o, stopping: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(e.handling)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		c.cancel(ErrStopped)
		return
	}
	o.running[b] = c
	e.daemons.Go(func() { e.runDaemon(c) })
}

// stop requests the end of a timer or daemon. The caller holds o.mu.
func (c *daemon) stop(why error) {
	if c.stopped {
		return
	}
	c.stopped = true
	close(c.stopping)
	c.timers = append(c.timers,
		time.AfterFunc(c.warning, func() { c.cancel(why) }),
		time.AfterFunc(c.warning+c.grace, c.abandon))
}

// abandon gives up a timer or daemon that does not end.
func (c *daemon) abandon() {
	c.object.mu.Lock()
	c.abandoned = true
	state := c.object.state
	c.object.mu.Unlock()
	e := c.object.engine
	e.logger.Error("it was told to stop and does not; it is left to itself", "object", c.object.key.String(), "handler", c.ID)
	c.object.recordEvent(state, "Warning", "DaemonAbandoned", c.ID+" was told to stop and does not")
	e.queue.Add(c.object.uid, 0)
}

// runDaemon runs a timer or daemon to its end.
func (e *engine) runDaemon(c *daemon) {
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
