package sim

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
)

// watch is an open watch. It runs in the calls of Next.
type watch struct {
	source *Source
	ctx    context.Context
	closed func()
	done   <-chan struct{}

	epoch        int
	definition   int                // of the objects, when the watch was opened
	delivered    keepwatch.Revision // the highest that was enqueued
	lastReceived time.Time          // when a batch arrived or the client called again
	bookmark     time.Time          // when the next one is due
	ends         time.Time          // by the server's timeout
	stalled      bool               // half-open: no more events arrive
	openedAt     time.Time

	queue   []keepwatch.Batch // not delivered yet
	breach  *Breach           // complete with the end of the queue
	failure error             // after the queue
}

func (s *Source) watch(ctx context.Context, from keepwatch.Revision, epoch, definition int) *watch {
	done := make(chan struct{})
	now := time.Now()
	return &watch{
		source: s, ctx: ctx, done: done, closed: sync.OnceFunc(func() { close(done) }),
		epoch: epoch, definition: definition, delivered: from, lastReceived: now, openedAt: now,
		bookmark: now.Add(s.settings.Bookmarks), ends: now.Add(serverTimeout),
	}
}

func (w *watch) Close() { w.closed() }

func (w *watch) Next() (keepwatch.Batch, error) {
	w.source.breaches.settle()
	w.lastReceived = time.Now()
	for len(w.queue) == 0 && w.failure == nil {
		w.step()
	}
	w.source.gate.wait(w.ctx)
	if len(w.queue) > 0 {
		sleep(w.ctx, batchGap)
	}
	if w.ctx.Err() != nil {
		w.queue, w.failure = nil, keepwatch.Failed(keepwatch.Ended, "watch: %w", context.Canceled)
	}
	if len(w.queue) == 0 {
		return keepwatch.Batch{}, w.failure
	}
	b := w.queue[0]
	w.queue = w.queue[1:]
	w.source.delivering(w.epoch, b.To)
	if len(w.queue) == 0 && w.breach != nil {
		w.source.breaches.complete(w.breach)
		w.breach = nil
	}
	return b, nil
}

// step enqueues events, a bookmark or a failure, or waits until there may be one.
func (w *watch) step() {
	now := time.Now()
	s := w.source
	s.world.mu.Lock()
	epoch := len(s.world.epochs)
	to, next := s.world.visible(now, s.lag())
	events, definition := s.world.events(w.delivered, to), s.world.definitionAt(to)
	moved := s.world.changed
	s.world.mu.Unlock()
	switch {
	case !now.Before(w.lastReceived.Add(w.source.settings.Idle)):
		w.fail(keepwatch.Idle, "no event for %v", s.settings.Idle)
	case w.stalled:
		w.wait(moved)
	case s.silence.Load() > 0:
		w.stepSilently(moved)
	case epoch != w.epoch:
		w.fail(keepwatch.Unreachable, "connection reset by peer")
	case definition > w.definition:
		w.fail(keepwatch.Ended, "the definition has changed")
	case s.drain.ends(w.openedAt):
		w.fail(keepwatch.Ended, "the server shuts down")
	case !now.Before(w.ends):
		w.fail(keepwatch.Ended, "the server's timeout")
	case len(events) > 0:
		for i := range events {
			events[i].Object = defined(events[i].Object, definition)
		}
		w.sendEvents(events, to)
	case !now.Before(w.bookmark):
		w.sendBookmark(to)
	default:
		w.wait(moved, next, w.bookmark, w.ends)
	}
}

// silence is how watches are silent from some time on.
type silence int32

const (
	heldBack  silence = 1 + iota // the connection is open, and nothing arrives
	cutOff                       // the same, and a balancer ends it before it is idle
	repeating                    // bookmarks repeat the revision that the watch began at
	silences
)

// cutOffAfter is shorter than every idle timeout.
const cutOffAfter = 9*time.Second + 307*time.Nanosecond

func (w *watch) stepSilently(moved <-chan struct{}) {
	now, cut := time.Now(), w.openedAt.Add(cutOffAfter)
	switch silence := silence(w.source.silence.Load()); {
	case silence == heldBack:
		w.wait(moved)
	case silence == cutOff && now.Before(cut):
		w.wait(moved, cut)
	case silence == cutOff:
		w.fail(keepwatch.Unreachable, "connection reset by peer")
	case !now.Before(w.ends):
		w.fail(keepwatch.Ended, "the server's timeout")
	case !now.Before(w.bookmark):
		w.bookmark = now.Add(w.source.settings.Bookmarks)
		w.enqueue(w.delivered)
	default:
		w.wait(moved, w.bookmark, w.ends)
	}
}

func (w *watch) fail(kind keepwatch.FailureKind, format string, args ...any) {
	w.failure = keepwatch.Failed(kind, format, args...)
}

// wait blocks until the world has changed, the watch is idle or one of the times is due, unless
// that is zero.
func (w *watch) wait(moved <-chan struct{}, times ...time.Time) {
	due := w.lastReceived.Add(w.source.settings.Idle)
	for _, t := range times {
		if !t.IsZero() && t.Before(due) {
			due = t
		}
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-moved:
	case <-timer.C:
	case <-w.ctx.Done():
		w.fail(keepwatch.Ended, "watch: %v", context.Canceled)
	case <-w.done:
		w.fail(keepwatch.Ended, "watch: closed")
	}
}

// sendBookmark decides about a bookmark that is due.
func (w *watch) sendBookmark(to keepwatch.Revision) {
	x := w.source.director.Decide(w.source.name, AtBookmark)
	w.bookmark = time.Now().Add(w.source.settings.Bookmarks)
	switch x.Choice {
	case "late":
		w.bookmark = time.Now().Add(time.Duration(1+x.Arg%50) * time.Second)
	case "absent":
	case "stall":
		w.stalled = true
	case "":
		if to >= w.delivered {
			w.enqueue(to)
		}
	default:
		w.failure = failure(AtBookmark, x)
	}
}

// enqueue adds a batch up to a revision to the queue.
func (w *watch) enqueue(to keepwatch.Revision, changes ...keepwatch.Change) {
	w.queue = append(w.queue, keepwatch.Batch{From: w.delivered, To: max(w.delivered, to), Changes: changes})
	w.delivered = max(w.delivered, to)
}

// sendEvents decides about the available events.
func (w *watch) sendEvents(events []keepwatch.Change, to keepwatch.Revision) {
	x := w.source.director.Decide(w.source.name, AtFrame)
	w.mark(x, events)
	switch x.Choice {
	case "one":
		w.enqueueRevisions(events, 1+int(x.Arg%2))
	case "stall":
		w.stalled = true
	case "slow":
		sleep(w.ctx, time.Duration(1+x.Arg%60)*time.Second)
		w.enqueueRevisions(events, len(events))
	case "hole": // the batch begins after the missing event
		w.delivered = events[0].Revision
		w.enqueue(to)
	case "duplicate":
		w.repeat(events, x)
	case "reorder":
		w.reorder(events, x)
	case "lying-bookmark":
		w.bookmarkTooEarly(events, x)
	case "":
		w.enqueueRevisions(events, len(events))
	default:
		if inside(x) { // after correct events
			w.enqueueRevisions(events, 1+int(x.Arg%2))
		}
		w.failure = failure(AtFrame, x)
	}
}

// mark records the marks of the events.
func (w *watch) mark(x Decision, events []keepwatch.Change) {
	for _, e := range events {
		if e.Type == keepwatch.Deleted {
			w.source.director.Mark(x, "delete")
		}
	}
	for i := range events[1:] {
		if events[i].Type == keepwatch.Deleted && events[i].Object.Key() == events[i+1].Object.Key() {
			w.source.director.Mark(x, "again")
		}
	}
}

// enqueueRevisions enqueues the events of the first n revisions.
func (w *watch) enqueueRevisions(events []keepwatch.Change, n int) {
	end := 0
	for end < len(events) && n > 0 {
		end = endOfRevision(events, end)
		n--
	}
	w.enqueue(events[end-1].Revision, events[:end]...)
}

// endOfRevision returns the end of the revision that begins at i.
func endOfRevision(events []keepwatch.Change, i int) int {
	end := i + 1
	for end < len(events) && events[end].Revision == events[i].Revision {
		end++
	}
	return end
}

// inside reports whether the fault is in one batch with correct events, as if both were read
// into one buffer.
func inside(x Decision) bool { return x.Arg >= 128 }

// beginFromScratch enqueues what exists, the oldest first, unless all of it is new to the client: then the
// watch looks like any other, and lacks deletions.
func (w *watch) beginFromScratch(objects []keepwatch.Object) {
	slices.SortStableFunc(objects, func(a, b keepwatch.Object) int { return cmp.Compare(a.Revision(), b.Revision()) })
	if len(objects) == 0 || objects[0].Revision() > w.delivered {
		return
	}
	var changes []keepwatch.Change
	for _, o := range objects {
		changes = append(changes, keepwatch.Change{Type: keepwatch.Added, Revision: o.Revision(), Object: o})
	}
	w.enqueue(objects[len(objects)-1].Revision(), changes...)
}

// repeat enqueues an event twice.
func (w *watch) repeat(events []keepwatch.Change, x Decision) {
	again := events[int(x.Arg)%len(events)]
	w.beginBreach(x, again.Revision, events[len(events)-1].Revision)
	if inside(x) {
		w.enqueue(events[len(events)-1].Revision, append(append([]keepwatch.Change(nil), events...), again)...)
		return
	}
	w.enqueueRevisions(events, len(events))
	w.enqueue(w.delivered, again)
}

// reorder swaps two neighbours of different revisions.
func (w *watch) reorder(events []keepwatch.Change, x Decision) {
	i := endOfRevision(events, 0)
	if i == len(events) {
		w.enqueueRevisions(events, 1)
		return
	}
	first, second := events[:i], events[i:endOfRevision(events, i)]
	to := second[0].Revision
	w.beginBreach(x, first[0].Revision, to)
	if inside(x) {
		w.enqueue(to, append(append([]keepwatch.Change(nil), second...), first...)...)
		return
	}
	w.enqueue(to, second...)
	w.enqueue(to, first...)
}

// bookmarkTooEarly enqueues a bookmark before the events that it claims to include.
func (w *watch) bookmarkTooEarly(events []keepwatch.Change, x Decision) {
	to := events[len(events)-1].Revision
	w.beginBreach(x, events[0].Revision, to)
	w.enqueue(to)
	for _, e := range events {
		w.enqueue(to, e)
	}
}

// beginBreach adds a breach of the revisions from and to. It is complete with the last batch
// of the queue.
func (w *watch) beginBreach(x Decision, from, to keepwatch.Revision) {
	w.breach = w.source.breaches.begin(Breach{
		Fault: x.Choice, At: time.Now(), From: from, To: to, Shared: w.source.settings.Processes > 1,
	})
}
