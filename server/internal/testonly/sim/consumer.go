package sim

import (
	"context"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/store"
)

// consumer follows a process's store with a watcher and records all deliveries. Before each
// call the director decides its next action.
type consumer struct {
	name      string
	filter    store.Filter
	mutant    Mutant
	director  *Director
	world     *World
	processes []*process // it is connected to the first
	steady    bool       // it only follows
	phase     time.Duration

	transcript   check.Transcript
	times        []time.Time // of the records
	marks        []store.Cursor
	incarnation  *incarnation
	cursor       store.Cursor
	initial      store.Cursor                       // the cursor at the start of the incarnation
	needlessEnds []store.Cursor                     // at which the store ended it, although it knew the changes after
	moves        []time.Time                        // to another store with its state
	fold         map[keepwatch.Key]keepwatch.Object // of what was received since the last whole state
	events       int
}

// run follows until ctx is done.
func (c *consumer) run(ctx context.Context) {
	for {
		inc := c.processes[0].connect(ctx)
		if inc == nil {
			return
		}
		if !c.attach(inc) {
			continue
		}
		if !c.follow(ctx, inc) || !sleep(ctx, c.phase) {
			return // it never reconnects in the instant in which it disconnected
		}
	}
}

// attach makes the cursor one of the incarnation's store, as soon as that has a state: a
// cursor of another store is taken for one of the current epoch. Nothing shows which epoch
// the cursor had there, so the consumer drops it after a restore. attach returns false if
// the incarnation has ended meanwhile.
func (c *consumer) attach(l *incarnation) bool {
	if l == c.incarnation {
		return true
	}
	if _, err := l.store.Watch(store.Cursor{}, store.Filter{}).Next(l.ctx); err != nil || !sleep(l.ctx, c.phase) {
		return false
	}
	c.incarnation = l
	r := c.cursor.Revision
	if _, epoch := c.world.Head(); epoch > 0 {
		r = 0
	}
	c.reset()
	if r > 0 {
		c.cursor = store.Cursor{Epoch: l.store.Snapshot().Cursor().Epoch, Revision: r}
		c.initial = c.cursor
		c.moves = append(c.moves, time.Now())
		c.marks = []store.Cursor{c.cursor}
	}
	return true
}

// moved reports whether it moved to another store with its state between two times.
func (c *consumer) moved(after, until time.Time) bool {
	return slices.ContainsFunc(c.moves, func(t time.Time) bool { return t.After(after) && !t.After(until) })
}

// reset makes the consumer begin without a cursor.
func (c *consumer) reset() { c.cursor, c.marks = store.Cursor{}, nil }

// follow watches until the watcher ends, and reports whether to continue.
func (c *consumer) follow(ctx context.Context, l *incarnation) bool {
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
				c.ended(l) // the store does not know even the difference
			}
			return ctx.Err() == nil
		}
		c.receive(l, w, d)
	}
}

// ended resets the consumer after its store has ended the watcher. The store must not do that
// while it knows the changes after the cursor, which holds for cursors of its own and of its
// epoch.
func (c *consumer) ended(l *incarnation) {
	history, difference := l.store.Bounds()
	now := l.store.Snapshot().Cursor()
	switch {
	case c.cursor.Epoch != now.Epoch || c.cursor.Revision == 0:
	case c.cursor.Revision >= history, c.cursor != c.initial && c.cursor.Revision >= difference:
		c.needlessEnds = append(c.needlessEnds, c.cursor)
	}
	c.reset()
}

// turn performs the decision before the next call, and reports whether to make that call.
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
			c.cursor = w.Cursor() // otherwise the end of the last delivery
		}
	case "behind":
		c.goBack(int(x.Arg))
	case "reset":
		c.reset()
	case "elsewhere":
		c.processes = append(slices.Clone(c.processes[1:]), c.processes[0])
	default:
		return true
	}
	return false
}

// later calls do after a time, unless ctx is done.
func (c *consumer) later(ctx context.Context, x Decision, do func()) {
	timer := time.AfterFunc(time.Duration(x.Arg%50)*time.Second+c.phase, do)
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// goBack returns to an older cursor of the same epoch and drops the newer ones. In another
// epoch the same revision may be another state.
func (c *consumer) goBack(n int) {
	first := slices.IndexFunc(c.marks, func(m store.Cursor) bool { return m.Epoch == c.cursor.Epoch })
	if first >= 0 {
		i := first + n%(len(c.marks)-first)
		c.cursor, c.marks = c.marks[i], c.marks[:i+1]
	}
}

func (c *consumer) receive(l *incarnation, w *store.Watcher, d keepwatch.Delivery) {
	r := check.Received{Delivery: d, At: time.Now()}
	if history, _ := l.store.Bounds(); w.Cursor().Epoch == c.cursor.Epoch &&
		c.cursor.Epoch == l.store.Snapshot().Cursor().Epoch {
		r.HistoryFrom = history // of the same epoch as the delivery
	}
	c.cursor = w.Cursor()
	c.marks = append(c.marks, c.cursor)
	c.record(r)
	c.events += len(changes(d))
	if gap, ok := d.(keepwatch.Gap); ok && gap.From == 0 {
		c.fold = map[keepwatch.Key]keepwatch.Object{}
	}
	for _, change := range changes(d) {
		if c.fold[change.Object.Key()] = change.Object; change.Type == keepwatch.Deleted {
			delete(c.fold, change.Object.Key())
		}
	}
	if c.steady && len(c.transcript.Records)%4 == 0 {
		c.recordStates(l)
	}
}

// recordStates records the store's current state and a past state within or before an older
// delivery. It waits for a moment first, so that the order of the actors in the instant does
// not matter.
func (c *consumer) recordStates(l *incarnation) {
	if !sleep(l.ctx, c.phase) {
		return
	}
	c.recordState(l.store.Snapshot())
	then := c.marks[max(0, len(c.marks)-3)]
	if past, err := l.store.At(then.Revision - 1); err == nil && past.Cursor().Epoch == then.Epoch {
		c.recordState(past)
	}
}

func (c *consumer) recordState(s *store.Snapshot) {
	shown := check.Shown{Revision: s.Revision()}
	for o := range s.All() {
		if c.matches(o) {
			shown.Objects = append(shown.Objects, o)
		}
	}
	c.record(shown)
}

// matches is the filter as a function for the oracle.
func (c *consumer) matches(o keepwatch.Object) bool {
	f, key := c.filter, o.Key()
	return (f.Namespace == "" || f.Namespace == key.Namespace) && (f.Name == "" || f.Name == key.Name) &&
		(f.Match == nil || f.Match(o))
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
