package sim

import (
	"context"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch"
)

// watch is an open watch. All of it runs in the calls of Next.
type watch struct {
	source *Source
	ctx    context.Context
	closed func()
	done   <-chan struct{}

	epoch    int
	shown    keepwatch.Revision // the highest so far
	heard    time.Time          // when something arrived or was waited for anew
	bookmark time.Time          // when the next is due
	ends     time.Time          // by the server's timeout
	stalled  bool               // half-open: nothing arrives any more
	opened   time.Time

	queue   []keepwatch.Batch // still to be handed out
	lie     *Lie              // that the queue completes
	failure error             // behind the queue
}

func (s *Source) watch(ctx context.Context, from keepwatch.Revision, epoch int) *watch {
	done := make(chan struct{})
	now := time.Now()
	return &watch{
		source: s, ctx: ctx, done: done, closed: sync.OnceFunc(func() { close(done) }),
		epoch: epoch, shown: from, heard: now, opened: now,
		bookmark: now.Add(s.settings.Bookmarks), ends: now.Add(serverTimeout),
	}
}

func (w *watch) Close() { w.closed() }

func (w *watch) Next() (keepwatch.Batch, error) {
	w.source.lies.answer()
	w.heard = time.Now()
	for len(w.queue) == 0 && w.failure == nil {
		w.step()
	}
	w.source.gate.pass(w.ctx)
	if len(w.queue) > 0 {
		sleep(w.ctx, settle)
	}
	if w.ctx.Err() != nil {
		w.queue, w.failure = nil, keepwatch.Failed(keepwatch.Ended, "watch: %w", context.Canceled)
	}
	if len(w.queue) == 0 {
		return keepwatch.Batch{}, w.failure
	}
	b := w.queue[0]
	w.queue = w.queue[1:]
	w.source.handOn(w.epoch, b.To)
	if len(w.queue) == 0 && w.lie != nil {
		w.source.lies.complete(w.lie)
		w.lie = nil
	}
	return b, nil
}

// step finds something to say, or waits until there may be.
func (w *watch) step() {
	now := time.Now()
	s := w.source
	s.world.mu.Lock()
	epoch := len(s.world.epochs)
	to, next := s.world.visible(now, s.lag())
	events := s.world.events(w.shown, to)
	moved := s.world.moved
	s.world.mu.Unlock()
	switch {
	case !now.Before(w.heard.Add(w.source.settings.Idle)):
		w.fail(keepwatch.Idle, "nothing was heard for %v", s.settings.Idle)
	case w.stalled:
		w.wait(moved, time.Time{})
	case epoch != w.epoch:
		w.fail(keepwatch.Unreachable, "connection reset by peer")
	case s.drain.ends(w.opened):
		w.fail(keepwatch.Ended, "the server shuts down")
	case !now.Before(w.ends):
		w.fail(keepwatch.Ended, "the server's timeout")
	case len(events) > 0:
		w.frame(events, to)
	case !now.Before(w.bookmark):
		w.mark(to)
	default:
		w.wait(moved, next)
	}
}

func (w *watch) fail(kind keepwatch.FailureKind, format string, args ...any) {
	w.failure = keepwatch.Failed(kind, format, args...)
}

// wait blocks until the world has moved or something is due.
func (w *watch) wait(moved <-chan struct{}, next time.Time) {
	due := w.heard.Add(w.source.settings.Idle)
	for _, t := range []time.Time{next, w.bookmark, w.ends} {
		if !w.stalled && !t.IsZero() && t.Before(due) {
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

// mark says a bookmark, or not.
func (w *watch) mark(to keepwatch.Revision) {
	x := w.source.director.Decide(w.source.name, AtBookmark)
	w.bookmark = time.Now().Add(w.source.settings.Bookmarks)
	switch x.Choice {
	case "late":
		w.bookmark = time.Now().Add(time.Duration(1+x.Arg%50) * time.Second)
	case "absent":
	case "stall":
		w.stalled = true
	case "":
		if to >= w.shown {
			w.say(to)
		}
	default:
		w.failure = failure(AtBookmark, x)
	}
}

// say queues a batch up to a revision.
func (w *watch) say(to keepwatch.Revision, changes ...keepwatch.Change) {
	w.queue = append(w.queue, keepwatch.Batch{From: w.shown, To: max(w.shown, to), Changes: changes})
	w.shown = max(w.shown, to)
}

// frame says what is at hand.
func (w *watch) frame(events []keepwatch.Change, to keepwatch.Revision) {
	x := w.source.director.Decide(w.source.name, AtFrame)
	w.aim(x, events)
	switch x.Choice {
	case "one":
		w.some(events, 1+int(x.Arg%2))
	case "stall":
		w.stalled = true
	case "slow":
		sleep(w.ctx, time.Duration(1+x.Arg%60)*time.Second)
		w.some(events, len(events))
	case "hole": // it is missing, and nothing hides that
		w.shown = events[0].Revision
		w.say(to)
	case "duplicate":
		w.repeat(events, x)
	case "reorder":
		w.reorder(events, x)
	case "lying-bookmark":
		w.lieAbout(events, x)
	case "":
		w.some(events, len(events))
	default:
		if inside(x) { // behind what is good
			w.some(events, 1+int(x.Arg%2))
		}
		w.failure = failure(AtFrame, x)
	}
}

// aim marks what a frame has to say.
func (w *watch) aim(x Decision, events []keepwatch.Change) {
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

// some says the events of the first n revisions.
func (w *watch) some(events []keepwatch.Change, n int) {
	end := 0
	for end < len(events) && n > 0 {
		end = whole(events, end)
		n--
	}
	w.say(events[end-1].Revision, events[:end]...)
}

// whole is where the revision ends that begins at i.
func whole(events []keepwatch.Change, i int) int {
	end := i + 1
	for end < len(events) && events[end].Revision == events[i].Revision {
		end++
	}
	return end
}

// inside: there is something good before the fault, as in a buffer that is read
// in one go. A batch has in itself what another source would cut in two.
func inside(x Decision) bool { return x.Arg >= 128 }

// repeat says an event again.
func (w *watch) repeat(events []keepwatch.Change, x Decision) {
	again := events[int(x.Arg)%len(events)]
	w.begin(x, again.Revision, events[len(events)-1].Revision)
	if inside(x) {
		w.say(events[len(events)-1].Revision, append(append([]keepwatch.Change(nil), events...), again)...)
		return
	}
	w.some(events, len(events))
	w.say(w.shown, again)
}

// reorder swaps two neighbours of different revisions.
func (w *watch) reorder(events []keepwatch.Change, x Decision) {
	i := whole(events, 0)
	if i == len(events) {
		w.some(events, 1)
		return
	}
	first, second := events[:i], events[i:whole(events, i)]
	to := second[0].Revision
	w.begin(x, first[0].Revision, to)
	if inside(x) {
		w.say(to, append(append([]keepwatch.Change(nil), second...), first...)...)
		return
	}
	w.say(to, second...)
	w.say(to, first...)
}

// lieAbout says a bookmark ahead of the events that it covers.
func (w *watch) lieAbout(events []keepwatch.Change, x Decision) {
	to := events[len(events)-1].Revision
	w.begin(x, events[0].Revision, to)
	w.say(to)
	for _, e := range events {
		w.say(to, e)
	}
}

// begin tells a lie about a piece of history; it is complete with the last batch
// of the queue.
func (w *watch) begin(x Decision, from, to keepwatch.Revision) {
	w.lie = w.source.lies.begin(Lie{
		Fault: x.Choice, At: time.Now(), From: from, To: to, Apart: w.source.settings.Processes > 1,
	})
}
