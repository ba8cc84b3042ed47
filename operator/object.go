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

// object is one object, identified by its UID.
type object struct {
	engine *engine
	uid    keepwatch.UID
	key    keepwatch.Key

	mu sync.Mutex
	// The state that the source delivered. It is replaced, never changed. It is nil while
	// the object is idle, or waits in the queue after the first list, unless timers or
	// daemons are declared: the source caches the state too, in less memory.
	state             map[string]any
	fetchState        bool // the state must be read from the source
	revision          keepwatch.Revision
	deliveredRevision keepwatch.Revision // of the last delivery; below revision after refresh
	delivered         uint64             // counts the changes that the source delivered
	gone              bool
	// forgotten is true once the engine has removed the object. Later changes create another one.
	forgotten   bool
	event       string // the merged events that OnEvent has not seen
	hasEvent    bool   // event is pending; its type is empty for the first list
	lastChanged time.Time
	// The revision of the last write. States below it do not contain that write.
	written        keepwatch.Revision
	settleDeadline time.Time       // of the wait for a newer state
	tasks          *background.Set // nil if the operator declares none

	// Used only by the worker that processes the object.
	listed, begun    bool
	deferred         map[string]cycle.Record // of Defer steps, by slot
	progressWritten  time.Time               // when a step was last accepted
	pending          *outgoing               // not accepted by the server yet; nil for nothing
	throttle         throttle.Throttle
	staleRevision    keepwatch.Revision // if not 0, a newer state ends the throttle
	failed           bool               // an error occurred in the current processing
	reportedFailures reportedFailures
}

// outgoing is a pending write, and its meaning once it is accepted.
type outgoing struct {
	write.Outgoing
	completed, begun bool
	// step: it is a step of a cycle, not changes of event handlers.
	step bool
}

// view is a snapshot of an object.
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

// fetch reads the state from the source. If the source has another object of that name, or
// none, it delivers the deletion soon. The caller holds o.mu.
func (o *object) fetch() {
	state, ok := o.engine.source.cached(o.key)
	if !ok || keepwatch.UID(state.GetUID()) != o.uid {
		return
	}
	o.state, o.fetchState = state.Object, false
	o.revision = max(o.revision, revisionOf(o.state))
}

// requeue restores an event that was not delivered to the handlers.
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

// present returns the newest state, and whether the object was deleted in it.
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
		o.revision, o.written = 0, 0 // the server was restored: own writes may be lost
	}
	if c.revision >= o.revision {
		o.state, o.revision, o.fetchState = c.object.Object, c.revision, false
	}
	if c.initial && !o.engine.hasBackground() {
		o.state, o.fetchState = nil, true // the queue after the first list may be long
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

// waitNewer waits at most a second for a state that is newer than a revision.
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

// settleTime bounds the wait for the source to deliver an own write. After it, the operator
// reads the object from the server.
const settleTime = 5 * time.Second

// outdated reports whether a state is older than the last own write, and until when to wait
// for the source to deliver a newer one.
func (o *object) outdated(g view) (outdated bool, settle time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return g.revision < o.written, o.settleDeadline
}

// unsettled returns until when to wait for the source to deliver the last own write; the
// zero time if it has, or if settleTime is over.
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
		RunsTimer: o.tasks.RunsTimer(),
	}
}

// deferRecord stores a record that is not written yet.
func (o *object) deferRecord(r cycle.Defer) {
	if o.deferred == nil {
		o.deferred = map[string]cycle.Record{}
	}
	o.deferred[r.Slot] = r.Record
}

// complete clears what a cycle stored in memory.
func (o *object) complete() { o.listed, o.begun, o.deferred = false, false, nil }
