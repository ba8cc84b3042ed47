package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Judge returns every promise that a transcript breaks, in the order of its
// records; none if all are kept. A history that contradicts itself panics.
//
// Where a source was restored from a backup, revisions alone do not tell which
// epoch a delivery is of: Judge keeps every epoch that explains all that was
// received so far, and a delivery is wrong when no epoch explains it. After a
// wrong one it goes on with what the consumer really holds, so that one mistake
// is reported once, and the gap that repairs it is none.
//
// One thing is let pass in a gap: a giver that no longer has the history can't
// know what a filter answered at the gap's start. Of objects that were there then
// it may report as Deleted what was not in the view, and as Modified what has
// entered it.
func Judge(h History, f Filter, t Transcript) []Violation {
	j := newJudge(h, f, t)
	for i, r := range t.Records {
		j.record = i
		j.take(r)
	}
	j.record = len(t.Records)
	j.finish()
	slices.SortStableFunc(j.violations, func(a, b Violation) int { return a.Record - b.Record })
	return j.violations
}

// judge is a transcript being read.
type judge struct {
	history    History
	transcript Transcript
	timelines  []*timeline
	violations []Violation
	record     int // in hand

	cursor keepwatch.Revision
	// live are the epochs whose timelines explain everything so far. Invariant: never
	// empty, in rising order.
	live  []int
	fold  *fold
	right bool // fold is the view at cursor of a live timeline
	ended bool

	// changed has what each change of the fold replaced, so that a consumer can go
	// back to one of its marks.
	changed []replaced
	marks   []mark

	bookmark keepwatch.Revision // the highest that was received
	buried   map[keepwatch.UID]keepwatch.Revision
	split    []event // that the batch before had to contain of its last revision

	current bool // the newest view is held
	since   time.Time
	endedAt time.Time
}

// mark is a moment to which a consumer can return: the end of a delivery.
type mark struct {
	cursor  keepwatch.Revision
	live    []int
	right   bool
	changed int
}

type replaced struct {
	key    keepwatch.Key
	object keepwatch.Object // nil: nothing
}

func newJudge(h History, f Filter, t Transcript) *judge {
	j := &judge{
		history: h, transcript: t, timelines: timelines(h, f),
		cursor: t.From, right: true, buried: map[keepwatch.UID]keepwatch.Revision{},
	}
	j.fold = j.timelines[t.Epoch].fold(h, t.From)
	for i := t.Epoch; i < len(j.timelines); i++ {
		if h.agrees(t.Epoch, i, t.From) {
			j.live = append(j.live, i)
		}
	}
	j.mark()
	j.current = j.newest()
	return j
}

func (j *judge) take(r Record) {
	if _, resumed := r.(Resumed); j.ended && !resumed {
		j.report(P13, "nothing after the end", fmt.Sprintf("%T", r))
	}
	switch r := r.(type) {
	case Received:
		j.receive(r)
	case Shown:
		j.shown(r)
	case Resumed:
		j.resume(r.Cursor)
	case Ended:
		j.end(r)
	default:
		panic(fmt.Sprintf("check: unknown record %T", r))
	}
}

func (j *judge) report(p Promise, want, got string) { j.add(finding{p, -1, want, got}) }

func (j *judge) add(findings ...finding) {
	for _, f := range findings {
		j.violations = append(j.violations, Violation{f.promise, j.record, f.change, f.want, f.got})
	}
}

// finding is a violation without its record.
type finding struct {
	promise   Promise
	change    int
	want, got string
}

// receive judges one delivery, folds it in, and compares the fold (P4).
func (j *judge) receive(r Received) {
	before, found := j.right, len(j.violations)
	switch d := r.Delivery.(type) {
	case keepwatch.Batch:
		j.contiguous(d.From, d.To, false)
		j.explain(j.live, r.At, d.To, func(t *timeline) []finding { return j.batch(t, d) })
		if j.split = nil; len(j.violations) > found {
			j.split = j.halved(d)
		}
		j.hold(d.To, d.Changes)
		if d.Bookmark() {
			j.bookmark = max(j.bookmark, d.To)
		}
	case keepwatch.Gap:
		j.contiguous(d.From, d.To, d.Reason == keepwatch.GapRewind && j.restored(r.At))
		j.declared(d, r.Kept)
		j.explain(j.from(j.live[0]), r.At, d.To, func(t *timeline) []finding { return j.gap(t, d) })
		if d.Reason == keepwatch.GapRewind {
			clear(j.buried)
			j.bookmark = 0
		}
		j.hold(d.To, d.Changes)
		j.split = nil
	default:
		panic(fmt.Sprintf("check: unknown delivery %T", d))
	}
	if before && !j.right && len(j.violations) == found {
		j.unequal(j.fold, j.cursor)
	}
	j.mark()
	j.note(r.At)
}

// restored reports whether an epoch may have begun since the one that is held.
func (j *judge) restored(at time.Time) bool {
	return slices.ContainsFunc(j.from(j.live[0]+1), func(k int) bool {
		return at.IsZero() || !at.Before(j.history.Epochs[k].Began)
	})
}

// contiguous is P1. With a source that was restored the cursor goes back, too.
func (j *judge) contiguous(from, to keepwatch.Revision, restored bool) {
	if from != j.cursor {
		j.report(P1, fmt.Sprintf("a delivery from the cursor, %d", j.cursor), fmt.Sprintf("one from %d", from))
	}
	if to < from && !restored {
		j.report(P1, fmt.Sprintf("a cursor that does not go back from %d", from), fmt.Sprintf("a delivery to %d", to))
	}
}

// declared is the second half of P3.
func (j *judge) declared(g keepwatch.Gap, kept keepwatch.Revision) {
	if kept > 0 && g.From >= kept && g.Reason != keepwatch.GapRewind {
		j.report(P3, fmt.Sprintf("history, which was there since %d", kept), fmt.Sprintf("a gap from %d", g.From))
	}
}

// explain keeps the epochs that explain a delivery up to a revision. If none of
// the candidates does, it reports what is least wrong, and any epoch may explain
// what follows.
func (j *judge) explain(candidates []int, at time.Time, to keepwatch.Revision, compare func(*timeline) []finding) {
	var least []finding
	var live, later []int
	for _, k := range candidates {
		if began := j.history.Epochs[k].Began; !at.IsZero() && at.Before(began) {
			later = append(later, k)
			continue
		}
		findings := compare(j.timelines[k])
		if len(findings) == 0 {
			live = append(live, k)
		} else if least == nil || len(findings) <= len(least) {
			least = findings
		}
	}
	for _, k := range later { // it is explained if it is the past of an epoch to come
		if slices.ContainsFunc(live, func(l int) bool { return j.history.agrees(l, k, to) }) {
			live = append(live, k)
		}
	}
	if len(live) == 0 {
		j.add(least...)
		live = j.from(j.live[0])
	}
	j.live = live
}

// from are the epochs from k on.
func (j *judge) from(k int) []int {
	var all []int
	for ; k < len(j.timelines); k++ {
		all = append(all, k)
	}
	return all
}

// hold folds changes in and moves the cursor.
func (j *judge) hold(to keepwatch.Revision, changes []keepwatch.Change) {
	for _, c := range changes {
		key := c.Object.Key()
		j.changed = append(j.changed, replaced{key, j.fold.objects[key]})
		j.fold.take(c)
		if c.Type == keepwatch.Deleted {
			j.buried[c.Object.UID()] = c.Revision
		}
	}
	j.cursor = to
	j.right = slices.ContainsFunc(j.live, func(k int) bool {
		return to <= j.timelines[k].last && j.timelines[k].sum(to) == j.fold.sum
	})
}

func (j *judge) mark() {
	j.marks = append(j.marks, mark{j.cursor, j.live, j.right, len(j.changed)})
}

// shown is P4 for a state that was shown.
func (j *judge) shown(s Shown) {
	state := newFold(j.history)
	for _, o := range s.Objects {
		state.put(o)
	}
	for _, k := range j.from(j.live[0]) {
		if j.timelines[k].sum(s.Revision) == state.sum {
			return
		}
	}
	j.unequal(state, s.Revision)
}

// unequal reports where a state is not the view of the newest live timeline (P4).
func (j *judge) unequal(state *fold, r keepwatch.Revision) {
	t := j.timelines[j.live[len(j.live)-1]]
	key, got, want, _ := state.difference(t.fold(j.history, r))
	j.report(P4, fmt.Sprintf("at %d %s", r, show(key, want)), show(key, got))
}

// show is what is at a key, in words.
func show(key keepwatch.Key, o keepwatch.Object) string {
	if o == nil {
		return fmt.Sprintf("no %s", key)
	}
	return fmt.Sprintf("%s as %s at %d", key, o.UID(), o.Revision())
}

// resume puts the consumer back to where it was at a cursor.
func (j *judge) resume(cursor keepwatch.Revision) {
	j.ended, j.split = false, nil
	if cursor == 0 {
		j.cursor, j.fold, j.right, j.live = 0, newFold(j.history), true, j.from(0)
		j.changed, j.marks, j.bookmark = nil, nil, 0
		clear(j.buried)
		j.mark()
		return
	}
	m, ok := j.find(cursor)
	if !ok {
		j.report(P1, "a cursor that the consumer has reached", fmt.Sprintf("it resumes at %d", cursor))
		j.cursor = cursor
		return
	}
	for len(j.changed) > m.changed {
		c := j.changed[len(j.changed)-1]
		j.changed = j.changed[:len(j.changed)-1]
		if j.fold.remove(c.key); c.object != nil {
			j.fold.put(c.object)
		}
	}
	j.cursor, j.live, j.right = cursor, m.live, m.right
	j.bookmark = min(j.bookmark, cursor)
	for uid, at := range j.buried {
		if at > cursor {
			delete(j.buried, uid)
		}
	}
}

// find returns the newest mark at a cursor, or before it with nothing in
// between on a timeline that reaches the cursor; the marks behind it are forgotten.
func (j *judge) find(cursor keepwatch.Revision) (mark, bool) {
	for i, m := range slices.Backward(j.marks) {
		if m.cursor == cursor || m.cursor < cursor && slices.ContainsFunc(m.live, func(k int) bool {
			return cursor <= j.timelines[k].last && len(j.timelines[k].between(m.cursor, cursor)) == 0
		}) {
			j.marks = j.marks[:i+1]
			return m, true
		}
	}
	return mark{}, false
}

// end is P13.
func (j *judge) end(e Ended) {
	j.ended, j.endedAt = true, e.At
	var failure *keepwatch.Failure
	switch {
	case e.Err == nil:
		j.report(P13, "a reason", "an end without one")
	case e.Asked != nil && errors.Is(e.Err, e.Asked):
	case !errors.As(e.Err, &failure) || !slices.Contains(keepwatch.FailureKinds(), failure.Kind):
		j.report(P13, "a reason with a type", fmt.Sprintf("%q", e.Err))
	}
}

// newest reports whether what is held is the newest view.
func (j *judge) newest() bool {
	last := len(j.timelines) - 1
	t := j.timelines[last]
	return j.right && slices.Contains(j.live, last) && len(t.between(j.cursor, t.last)) == 0
}

// note keeps the time since which the newest view is held.
func (j *judge) note(at time.Time) {
	if newest := j.newest(); newest != j.current {
		j.current, j.since = newest, at
	}
}

// finish judges what can only be seen at the end of a transcript: P13 and P11.
func (j *judge) finish() {
	if j.transcript.Over && !j.ended {
		j.report(P13, "an end", "a transcript without one")
	}
	calm := j.transcript.Calm
	if calm == nil {
		return
	}
	deadline := calm.At.Add(calm.Within)
	if j.ended && j.endedAt.Before(deadline) || j.current && !j.since.After(deadline) {
		return
	}
	t := j.timelines[len(j.timelines)-1]
	want := fmt.Sprintf("the view at %d within %v of the calm", t.last, calm.Within)
	if j.current {
		j.report(P11, want, fmt.Sprintf("it after %v", j.since.Sub(calm.At)))
	} else {
		j.report(P11, want, fmt.Sprintf("the view at %d", j.cursor))
	}
}
