package operator

import (
	"context"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/operator/internal/background"
	"github.com/keepwatch/keepwatch/operator/internal/cycle"
	"github.com/keepwatch/keepwatch/operator/internal/throttle"
	"github.com/keepwatch/keepwatch/operator/internal/write"
)

// object is one object in its life: another one of the same name is another object.
type object struct {
	engine *engine
	uid    keepwatch.UID
	key    keepwatch.Key

	mu sync.Mutex
	// What the source delivered. The state is replaced, never changed. It is nil while the
	// object is idle, or waits in the queue after the first list, unless a timer or daemon
	// may run: the source has the state too, in less memory.
	state             map[string]any
	fetchState        bool // the state must be read from the source
	revision          keepwatch.Revision
	deliveredRevision keepwatch.Revision // delivered last; below revision if the server was asked for the state
	delivered         uint64             // counts the changes that the source delivered
	gone              bool
	// forgotten is true once the engine has removed it: later changes are another object's.
	forgotten   bool
	event       string // joined from those that OnEvent has yet to see
	hasEvent    bool   // there is one
	lastChanged time.Time
	// What was written: states below the revision are older than that.
	written        keepwatch.Revision
	settleDeadline time.Time       // until when to wait for such a state
	tasks          *background.Set // nil if the operator declares none

	// Of the worker that has the object.
	listed, begun    bool
	deferred         map[string]cycle.Record // of Remember steps, by slot
	progressWritten  time.Time               // when a step was last written
	pending          *outgoing               // what the server has yet to take, nil for nothing
	throttle         throttle.Throttle
	staleRevision    keepwatch.Revision // what waits goes on with a state newer than this; 0 for not
	failed           bool               // in this turn something was an error
	reportedFailures reportedFailures
}

// outgoing is what is to be written, and what it means when it is.
type outgoing struct {
	write.Outgoing
	completed, begun bool
	// step: it is a step of a cycle, not of what handlers of events want.
	step bool
}

// view is an object at one moment.
type view struct {
	state     map[string]any
	revision  keepwatch.Revision
	delivered uint64
	gone      bool
	event     string
	hasEvent  bool
}

// view returns the object and takes its pending events.
func (o *object) view() view {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fetchState {
		o.fetch()
	}
	g := view{o.state, o.revision, o.delivered, o.gone, o.event, o.hasEvent}
	o.event, o.hasEvent = "", false
	return g
}

// read reads the state from the source. If the source has another object of that name, or
// none, it is about to deliver the deletion. The caller holds o.mu.
func (o *object) fetch() {
	state, ok := o.engine.source.cached(o.key)
	if !ok || keepwatch.UID(state.GetUID()) != o.uid {
		return
	}
	o.state, o.fetchState = state.Object, false
	o.revision = max(o.revision, revisionOf(o.state))
}

// requeue returns events that were not delivered to the handlers.
func (o *object) requeue(g view) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.hasEvent && !o.hasEvent {
		o.event, o.hasEvent = g.event, true
	}
}

// release drops the state once it was handled.
func (o *object) release(g view) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.engine.hasBackground() && o.delivered == g.delivered && o.deliveredRevision == o.revision && !o.gone {
		o.state = nil
	}
}

func (o *object) newest() map[string]any {
	state, _ := o.present()
	return state
}

// present is the newest state, and whether it was the last.
func (o *object) present() (state map[string]any, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state, o.gone
}

// accept accepts a change of the source. It reports false if the object was forgotten.
func (o *object) accept(c change, changed func(old, new map[string]any) bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.forgotten {
		return false
	}
	event := c.typ.String()
	if c.initial {
		event = ""
	}
	if !o.hasEvent || o.gone || event == keepwatch.Deleted.String() {
		o.event = event
	}
	o.hasEvent = true
	if o.state == nil || changed(o.state, c.object.Object) {
		o.lastChanged = time.Now()
	}
	if c.revision < o.deliveredRevision {
		o.revision, o.written = 0, 0 // the server has gone back in time: what was written may be undone
	}
	if c.revision >= o.revision {
		o.state, o.revision, o.fetchState = c.object.Object, c.revision, false
	}
	if c.initial && !o.engine.hasBackground() {
		o.state, o.fetchState = nil, true // there may be many, and their turn may come late
	}
	o.deliveredRevision = c.revision
	o.delivered++
	o.gone = c.typ == keepwatch.Deleted
	return true
}

// adopt accepts a state that the source has not delivered yet.
func (o *object) adopt(state map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if revision := revisionOf(state); revision > o.revision {
		o.state, o.revision = state, revision
	}
}

// newer waits, for a second at most, for a state that is newer than a revision.
func (o *object) waitNewer(ctx context.Context, than keepwatch.Revision) {
	end := time.NewTimer(time.Second)
	defer end.Stop()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		o.mu.Lock()
		newer := o.revision > than
		o.mu.Unlock()
		if newer {
			return
		}
		select {
		case <-poll.C:
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// wrote records the revision of a write of this operator.
func (o *object) wrote(revision keepwatch.Revision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if revision > o.written {
		o.written, o.settleDeadline = revision, time.Now().Add(settleTime)
	}
}

// settleTime is how long handlers wait until the source delivers what was written. Then the
// server is asked for it.
const settleTime = 5 * time.Second

// behind reports whether a state is older than what was written, and until when to
// wait for the source to deliver a newer one.
func (o *object) behind(g view) (behind bool, settle time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return g.revision < o.written, o.settleDeadline
}

// unsettled returns until when to wait for the source to deliver what was written; the zero
// time if it has, or if that was long ago.
func (o *object) unsettled(now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || o.revision >= o.written || !now.Before(o.settleDeadline) {
		return time.Time{}
	}
	return o.settleDeadline
}

func text(state map[string]any, name string) string {
	about, _ := state["metadata"].(map[string]any)
	s, _ := about[name].(string)
	return s
}

func (o *object) seen(g view) cycle.Seen {
	return cycle.Seen{
		Object: g.state, Gone: g.gone, Listed: o.listed, Begun: o.begun,
		Deferred: o.deferred, Written: o.progressWritten,
		WantsDaemon: o.tasks.WantsDaemon(o.engine.taskState(g)), RunsDaemon: o.tasks.RunsDaemon(),
	}
}

// remember keeps a record that is not written yet.
func (o *object) deferRecord(r cycle.Defer) {
	if o.deferred == nil {
		o.deferred = map[string]cycle.Record{}
	}
	o.deferred[r.Slot] = r.Record
}

// complete ends a cycle.
func (o *object) complete() { o.listed, o.begun, o.deferred = false, false, nil }
