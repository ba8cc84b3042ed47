package sim

import (
	"context"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/store"
)

// consumer follows a process's store with a watcher, and writes down all that it
// receives. What it does besides is decided turn by turn.
type consumer struct {
	name     string
	filter   store.Filter
	mutant   Mutant
	director *Director
	world    *World
	home     []*process // the first is where it is connected
	steady   bool       // it does nothing but follow
	phase    time.Duration

	transcript check.Transcript
	times      []time.Time // of the records
	marks      []store.Cursor
	life       *life
	cursor     store.Cursor
	brought    store.Cursor   // the cursor with which it came to life
	needless   []store.Cursor // at which it was cast out, and need not have been
	arrivals   []time.Time    // with what it held, at a store that did not know it
	events     int
}

// run follows until ctx is done.
func (c *consumer) run(ctx context.Context) {
	for {
		life := c.home[0].connect(ctx)
		if life == nil {
			return
		}
		if !c.arrive(life) {
			continue
		}
		if !c.follow(ctx, life) || !sleep(ctx, c.phase) {
			return // it never comes back in the instant in which it left
		}
	}
}

// arrive makes the cursor one of the life's store, once that has a state: one
// from elsewhere is in the current epoch. Nothing tells what epoch it was in
// elsewhere, so that nobody should keep a cursor when the source was restored. It
// reports false when the life ended meanwhile.
func (c *consumer) arrive(l *life) bool {
	if l == c.life {
		return true
	}
	if _, err := l.store.Watch(store.Cursor{}, store.Filter{}).Next(l.ctx); err != nil || !sleep(l.ctx, c.phase) {
		return false
	}
	c.life = l
	r := c.cursor.Revision
	if _, epoch := c.world.Head(); epoch > 0 {
		r = 0
	}
	c.forget()
	if r > 0 {
		c.cursor = store.Cursor{Epoch: l.store.Snapshot().Cursor().Epoch, Revision: r}
		c.brought = c.cursor
		c.arrivals = append(c.arrivals, time.Now())
		c.marks = []store.Cursor{c.cursor}
	}
	return true
}

// arrived reports whether it came to another store between two times, with what
// it held.
func (c *consumer) arrived(after, until time.Time) bool {
	return slices.ContainsFunc(c.arrivals, func(t time.Time) bool { return t.After(after) && !t.After(until) })
}

// forget makes the consumer begin with nothing.
func (c *consumer) forget() { c.cursor, c.marks = store.Cursor{}, nil }

// follow watches until the watcher ends, and reports whether to go on.
func (c *consumer) follow(ctx context.Context, l *life) bool {
	if len(c.transcript.Records) > 0 {
		c.record(check.Resumed{Cursor: c.cursor.Revision})
	}
	filter := c.mutant.filter(c.filter)
	w := l.store.Watch(c.cursor, filter)
	for {
		connected, cancel := context.WithCancelCause(l.ctx)
		if !c.turn(connected, cancel, w) {
			cancel(nil)
			c.record(check.Ended{Err: errRestart, Asked: errRestart, At: time.Now()})
			return true
		}
		if at := c.mutant.cursor(w.Cursor(), l.store); at != w.Cursor() {
			w = l.store.Watch(at, filter)
		}
		d, err := c.mutant.delivery(w.Next(connected))
		asked := context.Cause(connected)
		cancel(nil)
		if err != nil && asked == errTimeout {
			sleep(l.ctx, time.Minute+c.phase)
			continue
		}
		if err != nil {
			c.record(check.Ended{Err: err, Asked: asked, At: time.Now()})
			if asked == nil {
				c.cast(l) // not even the difference is known
			}
			return ctx.Err() == nil
		}
		c.receive(l, w, d)
	}
}

// cast out by its store, a consumer begins with nothing. That must not be while
// the store knows what followed the cursor: since when is only told of cursors of
// its own making and epoch.
func (c *consumer) cast(l *life) {
	history, difference := l.store.Bounds()
	now := l.store.Snapshot().Cursor()
	switch {
	case c.cursor.Epoch != now.Epoch || c.cursor.Revision == 0:
	case c.cursor.Revision >= history, c.cursor != c.brought && c.cursor.Revision >= difference:
		c.needless = append(c.needless, c.cursor)
	}
	c.forget()
}

// turn does what is decided before the next call, and reports whether there is
// to be one.
func (c *consumer) turn(ctx context.Context, cancel context.CancelCauseFunc, w *store.Watcher) bool {
	if c.steady {
		return true
	}
	switch x := c.director.Decide(c.name, AtTurn); x.Choice {
	case "slow":
		sleep(ctx, time.Duration(1+x.Arg%90)*time.Second+c.phase)
		return true
	case "cancel":
		c.later(ctx, x, func() { cancel(errRestart) })
		return true
	case "timeout":
		c.later(ctx, x, func() { cancel(errTimeout) })
		return true
	case "resume":
		if x.Arg%2 == 0 {
			c.cursor = w.Cursor() // else where the last delivery ended
		}
	case "behind":
		c.back(int(x.Arg))
	case "anew":
		c.forget()
	case "elsewhere":
		c.home = append(slices.Clone(c.home[1:]), c.home[0])
	default:
		return true
	}
	return false
}

// later does something after a while, unless ctx is done.
func (c *consumer) later(ctx context.Context, x Decision, do func()) {
	timer := time.AfterFunc(time.Duration(x.Arg%50)*time.Second+c.phase, do)
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// back returns to an older cursor of the same epoch, and forgets what came
// after: in another epoch the same revision may be something else.
func (c *consumer) back(n int) {
	first := slices.IndexFunc(c.marks, func(m store.Cursor) bool { return m.Epoch == c.cursor.Epoch })
	if first >= 0 {
		i := first + n%(len(c.marks)-first)
		c.cursor, c.marks = c.marks[i], c.marks[:i+1]
	}
}

func (c *consumer) receive(l *life, w *store.Watcher, d keepwatch.Delivery) {
	r := check.Received{Delivery: d, At: time.Now()}
	if kept, _ := l.store.Bounds(); w.Cursor().Epoch == c.cursor.Epoch && c.cursor.Epoch == l.store.Snapshot().Cursor().Epoch {
		r.HistoryFrom = kept // of the same epoch as the delivery
	}
	c.cursor = w.Cursor()
	c.marks = append(c.marks, c.cursor)
	c.record(r)
	c.events += len(changes(d))
	if c.steady && len(c.transcript.Records)%4 == 0 {
		c.look(l)
	}
}

// look writes down the state as the store shows it now, and as it shows the
// past within or before an older delivery. It lets the moment pass, so that it does not matter who
// was first in it.
func (c *consumer) look(l *life) {
	if !sleep(l.ctx, c.phase) {
		return
	}
	c.show(l.store.Snapshot())
	then := c.marks[max(0, len(c.marks)-3)]
	if past, err := l.store.At(then.Revision - 1); err == nil && past.Cursor().Epoch == then.Epoch {
		c.show(past)
	}
}

func (c *consumer) show(s *store.Snapshot) {
	shown := check.Shown{Revision: s.Revision()}
	for o := range s.All() {
		if c.sees(o) {
			shown.Objects = append(shown.Objects, o)
		}
	}
	c.record(shown)
}

// sees is the filter as the oracle understands it.
func (c *consumer) sees(o keepwatch.Object) bool {
	f, key := c.filter, o.Key()
	return (f.Namespace == "" || f.Namespace == key.Namespace) && (f.Name == "" || f.Name == key.Name) && (f.Match == nil || f.Match(o))
}

func (c *consumer) record(r check.Record) {
	c.transcript.Records = append(c.transcript.Records, r)
	c.times = append(c.times, time.Now())
}

func changes(d keepwatch.Delivery) []keepwatch.Change {
	switch d := d.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}
