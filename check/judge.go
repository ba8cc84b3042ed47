package check

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keepwatch/keepwatch"
)

// Judge returns the violations of the promises in a transcript, in the order of its
// records. It panics if the history contradicts itself.
//
// After a restore from a backup, a revision does not identify an epoch. Judge therefore
// tracks all epochs that explain the transcript so far, and a delivery is wrong if no epoch
// explains it. After a wrong delivery Judge continues with the consumer's actual state: it
// reports a mistake once, and accepts the gap that repairs it.
//
// Judge accepts one inexactness in a gap: a sender without the history cannot evaluate the
// filter at the gap's start. It may send an object that existed then as Deleted although
// it was not in the view, and as Modified although it entered the view in the gap. An object that left the view in the
// gap and returned may be sent as Deleted and Added, or as Modified.
func Judge(h History, f Filter, t Transcript) []Violation {
	j := newJudge(h, f, t)
	for i, r := range t.Records {
		j.index = i
		j.judgeRecord(r)
	}
	j.index = len(t.Records)
	j.finish()
	slices.SortStableFunc(j.violations, func(a, b Violation) int { return a.Record - b.Record })
	return j.violations
}

// judge is the progress of Judge through a transcript.
type judge struct {
	history    History
	transcript Transcript
	timelines  []*timeline
	violations []Violation
	index      int // of the current record

	cursor keepwatch.Revision
	// epochs has the epochs whose timelines explain the transcript so far. Invariant: not
	// empty, ascending.
	epochs  []int
	fold    *fold
	correct bool // fold equals the view at cursor of one of epochs
	ended   bool

	// changed has the prior state for each change of the fold: a consumer can resume at a
	// mark.
	changed []replaced
	marks   []mark

	bookmark keepwatch.Revision                   // the highest that was received
	deleted  map[keepwatch.UID]keepwatch.Revision // the revision of each deletion
	// split has the events of the last batch's last revision that were missing in the batch.
	// P8 is reported for them, and they may follow.
	split []event

	newest      bool // the consumer has the newest view
	newestSince time.Time
	endedAt     time.Time
}

// mark is the end of a delivery, where a consumer can resume.
type mark struct {
	cursor  keepwatch.Revision
	epochs  []int
	correct bool
	changed int
}

type replaced struct {
	key    keepwatch.Key
	object keepwatch.Object // nil: none
}

func newJudge(h History, f Filter, t Transcript) *judge {
	j := &judge{
		history: h, transcript: t, timelines: timelines(h, f),
		cursor: t.From, correct: true, deleted: map[keepwatch.UID]keepwatch.Revision{},
	}
	j.fold = j.timelines[t.Epoch].fold(h, t.From)
	for i := t.Epoch; i < len(j.timelines); i++ {
		if h.agrees(t.Epoch, i, t.From) {
			j.epochs = append(j.epochs, i)
		}
	}
	j.mark()
	j.newest = j.atNewest()
	return j
}

func (j *judge) judgeRecord(r Record) {
	if _, resumed := r.(Resumed); j.ended && !resumed {
		j.report(P13, "no record after the end", fmt.Sprintf("a %T", r))
	}
	switch r := r.(type) {
	case Received:
		j.receive(r)
	case Shown:
		j.judgeShown(r)
	case Resumed:
		j.resume(r.Cursor)
	case Ended:
		j.judgeEnd(r)
	default:
		panic(fmt.Sprintf("check: unknown record %T", r))
	}
}

func (j *judge) report(p Promise, want, got string) { j.add(finding{p, -1, want, got}) }

func (j *judge) add(findings ...finding) {
	for _, f := range findings {
		j.violations = append(j.violations, Violation{f.promise, j.index, f.change, f.want, f.got})
	}
}

// finding is a violation without its record.
type finding struct {
	promise   Promise
	change    int
	want, got string
}

// receive judges one delivery, applies it, and compares the fold (P4).
func (j *judge) receive(r Received) {
	before, found := j.correct, len(j.violations)
	switch d := r.Delivery.(type) {
	case keepwatch.Batch:
		j.checkContiguity(d.From, d.To, false)
		j.explain(j.epochs, r.At, d.To, func(t *timeline) []finding { return j.batch(t, d) })
		if j.split = nil; len(j.violations) > found {
			j.split = j.splitEvents(d)
		}
		j.apply(d.To, d.Changes)
		if d.Bookmark() {
			j.bookmark = max(j.bookmark, d.To)
		}
	case keepwatch.Gap:
		j.checkContiguity(d.From, d.To, d.Reason == keepwatch.GapRewind && j.restored(r.At))
		j.needed(d, r.HistoryFrom)
		j.explain(j.epochsFrom(j.epochs[0]), r.At, d.To, func(t *timeline) []finding { return j.gap(t, d) })
		if d.Reason == keepwatch.GapRewind {
			clear(j.deleted)
			j.bookmark = 0
		}
		j.apply(d.To, d.Changes)
		j.split = nil
	default:
		panic(fmt.Sprintf("check: unknown delivery %T", d))
	}
	if before && !j.correct && len(j.violations) == found {
		j.reportState(j.fold, j.cursor)
	}
	j.mark()
	j.noteNewest(r.At)
}

// restored reports whether a later epoch than the consumer's may have begun.
func (j *judge) restored(at time.Time) bool {
	return slices.ContainsFunc(j.epochsFrom(j.epochs[0]+1), func(k int) bool {
		return at.IsZero() || !at.Before(j.history.Epochs[k].Began)
	})
}

// checkContiguity judges P1. After a restore the cursor may go back.
func (j *judge) checkContiguity(from, to keepwatch.Revision, restored bool) {
	if from != j.cursor {
		j.report(P1, fmt.Sprintf("a delivery from the cursor, %d", j.cursor), fmt.Sprintf("a delivery from %d", from))
	}
	if to < from && !restored {
		j.report(P1, fmt.Sprintf("a delivery up to %d or later", from), fmt.Sprintf("a delivery up to %d", to))
	}
}

// needed judges the second half of P3: a gap only where the history has expired.
func (j *judge) needed(g keepwatch.Gap, historyFrom keepwatch.Revision) {
	if historyFrom > 0 && g.From >= historyFrom && g.Reason != keepwatch.GapRewind {
		j.report(P3, fmt.Sprintf("the history, which the sender had from %d on", historyFrom), fmt.Sprintf("a gap from %d",
			g.From))
	}
}

// explain reduces the epochs to those of the candidates that explain a delivery up to a
// revision. If none does, it reports the findings of the epoch with the fewest, and any
// epoch may explain the next delivery.
func (j *judge) explain(candidates []int, at time.Time, to keepwatch.Revision, compare func(*timeline) []finding) {
	var least []finding
	var explaining, later []int
	for _, k := range candidates {
		if began := j.history.Epochs[k].Began; !at.IsZero() && at.Before(began) {
			later = append(later, k)
			continue
		}
		findings := compare(j.timelines[k])
		if len(findings) == 0 {
			explaining = append(explaining, k)
		} else if least == nil || len(findings) <= len(least) {
			least = findings
		}
	}
	for _, k := range later { // a later epoch has the delivery in its past
		if slices.ContainsFunc(explaining, func(l int) bool { return j.history.agrees(l, k, to) }) {
			explaining = append(explaining, k)
		}
	}
	if len(explaining) == 0 {
		j.add(least...)
		explaining = j.epochsFrom(j.epochs[0])
	}
	j.epochs = explaining
}

// epochsFrom returns the epochs from k on.
func (j *judge) epochsFrom(k int) []int {
	var all []int
	for ; k < len(j.timelines); k++ {
		all = append(all, k)
	}
	return all
}

// apply applies changes to the fold and moves the cursor.
func (j *judge) apply(to keepwatch.Revision, changes []keepwatch.Change) {
	for _, c := range changes {
		key := c.Object.Key()
		j.changed = append(j.changed, replaced{key, j.fold.objects[key]})
		j.fold.apply(c)
		if c.Type == keepwatch.Deleted {
			j.deleted[c.Object.UID()] = c.Revision
		}
	}
	j.cursor = to
	j.correct = slices.ContainsFunc(j.epochs, func(k int) bool {
		return to <= j.timelines[k].last && j.timelines[k].sum(to) == j.fold.sum
	})
}

func (j *judge) mark() {
	j.marks = append(j.marks, mark{j.cursor, j.epochs, j.correct, len(j.changed)})
}

// judgeShown judges P4 for a Shown.
func (j *judge) judgeShown(s Shown) {
	state := newFold(j.history)
	for _, o := range s.Objects {
		state.put(o)
	}
	for _, k := range j.epochsFrom(j.epochs[0]) {
		if j.timelines[k].sum(s.Revision) == state.sum {
			return
		}
	}
	j.reportState(state, s.Revision)
}

// reportState reports the first key at which a state differs from the view of the newest
// possible epoch (P4).
func (j *judge) reportState(state *fold, r keepwatch.Revision) {
	t := j.timelines[j.epochs[len(j.epochs)-1]]
	key, got, want, _ := state.difference(t.fold(j.history, r))
	j.report(P4, fmt.Sprintf("at %d %s", r, describeState(key, want)), describeState(key, got))
}

// describeState formats the state of a key.
func describeState(key keepwatch.Key, o keepwatch.Object) string {
	if o == nil {
		return fmt.Sprintf("no %s", key)
	}
	return fmt.Sprintf("%s as %s at %d", key, o.UID(), o.Revision())
}

// resume restores the consumer's state at a cursor.
func (j *judge) resume(cursor keepwatch.Revision) {
	j.ended, j.split = false, nil
	if cursor == 0 {
		j.cursor, j.fold, j.correct, j.epochs = 0, newFold(j.history), true, j.epochsFrom(0)
		j.changed, j.marks, j.bookmark = nil, nil, 0
		clear(j.deleted)
		j.mark()
		return
	}
	m, ok := j.findMark(cursor)
	if !ok {
		j.report(P1, "a resume at a cursor of the consumer", fmt.Sprintf("a resume at %d", cursor))
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
	j.cursor, j.epochs, j.correct = cursor, m.epochs, m.correct
	j.bookmark = min(j.bookmark, cursor)
	for uid, at := range j.deleted {
		if at > cursor {
			delete(j.deleted, uid)
		}
	}
}

// findMark returns the newest mark at a cursor, or one before it without an event between
// on a timeline that reaches the cursor. It removes the later marks.
func (j *judge) findMark(cursor keepwatch.Revision) (mark, bool) {
	for i, m := range slices.Backward(j.marks) {
		if m.cursor == cursor || m.cursor < cursor && slices.ContainsFunc(m.epochs, func(k int) bool {
			return cursor <= j.timelines[k].last && len(j.timelines[k].between(m.cursor, cursor)) == 0
		}) {
			j.marks = j.marks[:i+1]
			return m, true
		}
	}
	return mark{}, false
}

// judgeEnd judges P13.
func (j *judge) judgeEnd(e Ended) {
	j.ended, j.endedAt = true, e.At
	var failure *keepwatch.Failure
	switch {
	case e.Err == nil:
		j.report(P13, "an end with a reason", "an end without one")
	case e.Asked != nil && errors.Is(e.Err, e.Asked):
	case !errors.As(e.Err, &failure) || !slices.Contains(keepwatch.FailureKinds(), failure.Kind):
		j.report(P13, "an end with a typed reason", fmt.Sprintf("an end with %q", e.Err))
	}
}

// atNewest reports whether the consumer's state is the newest view.
func (j *judge) atNewest() bool {
	last := len(j.timelines) - 1
	t := j.timelines[last]
	return j.correct && slices.Contains(j.epochs, last) && len(t.between(j.cursor, t.last)) == 0
}

// noteNewest records the time at which the consumer reached the newest view.
func (j *judge) noteNewest(at time.Time) {
	if newest := j.atNewest(); newest != j.newest {
		j.newest, j.newestSince = newest, at
	}
}

// finish judges P13 and P11 at the end of a transcript.
func (j *judge) finish() {
	if j.transcript.Over && !j.ended {
		j.report(P13, "an end of the stream", "a transcript without one")
	}
	calm := j.transcript.Calm
	if calm == nil {
		return
	}
	deadline := calm.At.Add(calm.Within)
	if j.ended && j.endedAt.Before(deadline) || j.newest && !j.newestSince.After(deadline) {
		return
	}
	t := j.timelines[len(j.timelines)-1]
	want := fmt.Sprintf("the view at %d within %v of the calm", t.last, calm.Within)
	if j.newest {
		j.report(P11, want, fmt.Sprintf("it after %v", j.newestSince.Sub(calm.At)))
	} else {
		j.report(P11, want, fmt.Sprintf("the view at %d only", j.cursor))
	}
}
