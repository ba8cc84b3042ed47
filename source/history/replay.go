package history

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// replay is a watch of the past.
type replay struct {
	source *Source
	ctx    context.Context
	cancel context.CancelFunc
	at     sink.Point // what was delivered
	rest   []recorded // what was read after that, and is not delivered yet
	upTo   sink.Point // rest is complete up to here
	few    int        // points are read at a time
	moved  time.Time  // when move was called last, or might have been
	end    error      // permanent
}

func (w *replay) Close() { w.cancel() }

// Next returns the next batch; see keepwatch.Watch.
func (w *replay) Next() (keepwatch.Batch, error) {
	w.source.begin(w.ctx)
	for w.end == nil {
		batch, again, err := w.next()
		switch {
		case err != nil:
			w.end = w.source.failure(err)
		case batch != nil && w.ctx.Err() == nil:
			w.at.Revision = batch.To
			w.source.advance(batch.To)
			return *batch, nil
		case batch == nil:
			w.wait(again)
		}
		if w.ctx.Err() != nil {
			w.end = &keepwatch.Failure{Kind: keepwatch.Ended, Err: context.Cause(w.ctx)}
		}
	}
	return keepwatch.Batch{}, w.end
}

// wait waits until a time, or for ever if nothing follows the source's point.
func (w *replay) wait(until time.Time) {
	if !w.source.options.Onward {
		<-w.ctx.Done()
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// next returns the next batch if there is one that is due, and otherwise nil and when to look again.
func (w *replay) next() (batch *keepwatch.Batch, again time.Time, err error) {
	options := w.source.options
	if !options.Onward {
		return nil, again, nil
	}
	if w.moved.IsZero() {
		w.moved = time.Now()
	}
	if len(w.rest) == 0 {
		again = time.Now().Add(pollEvery)
		more, err := w.source.history.mayHaveMore(w.ctx, options.Resource, options.Namespace, w.at)
		if err != nil || !more {
			return nil, again, err
		}
		var due time.Time
		err = w.source.history.View(w.ctx, func(v *View) error {
			batch, due, err = w.read(v)
			return err
		})
		if due.After(again) {
			again = due
		}
		if err != nil || batch != nil || len(w.rest) == 0 {
			return batch, again, err
		}
	}
	now := time.Now()
	due := w.source.dueAt(w.rest[0].seen)
	if !due.After(now) {
		return w.take(now), again, nil
	}
	if again = w.moved.Add(moveEvery); again.After(now) {
		return nil, earlier(again, due), nil
	}
	batch, err = w.move()
	return batch, earlier(now.Add(moveEvery), due), err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// read reads what comes next into rest. It returns a bookmark if there are no changes, and nothing if there is no more
// yet, or a gap follows, whose end is due then.
func (w *replay) read(v *View) (*keepwatch.Batch, time.Time, error) {
	s := w.source
	var none time.Time
	of, err := v.StreamOf(s.options.Resource, s.options.Namespace)
	if err != nil {
		return nil, none, keepwatch.Failed(keepwatch.Absent, "%w", err)
	}
	if err := s.findStart(w.ctx, v, of); err != nil {
		return nil, none, err
	}
	if err := s.overtaken(w.ctx, v, of, w.at); err != nil {
		return nil, none, err
	}
	before, ahead, err := v.beforeJump(w.ctx, of)
	if err != nil {
		return nil, none, err
	}
	stored := func(at time.Time) time.Time { // no pause was recorded before a time of a clock that was ahead
		if ahead && at.After(before.Time) {
			return before.Time
		}
		return at
	}
	end := sink.Point{Epoch: of.Progress.Epoch, Revision: of.Progress.Cursor}
	if of.Progress.Gap == keepwatch.GapRewind {
		end.Epoch--
	}
	if gap, after := s.nextGap(v, of, w.at); gap != nil {
		thinned := gap.Reason == sink.GapThinned && gap.Epoch == w.at.Epoch && gap.From < w.at.Revision
		if thinned || gap.From == w.at.Revision || gap.Reason == keepwatch.GapRewind &&
			!w.at.Before(sink.Point{Epoch: w.at.Epoch, Revision: gap.From}) {
			if end.Before(after) {
				return nil, none, nil // the list that ends it is not complete
			}
			if due := s.dueAt(stored(gap.Ended)); time.Now().Before(due) {
				return nil, due, nil
			}
			return nil, none, s.leap(*gap, after)
		}
		end = sink.Point{Epoch: w.at.Epoch, Revision: gap.From}
	}
	for w.at.Before(end) {
		points, err := v.tables.PointsAfter(w.ctx, of.ID.Resource, of.ID.Namespace, w.at, w.few)
		if err != nil {
			return nil, none, err
		}
		if len(points) == 0 || end.Before(points[0]) {
			if s.options.Speed > 0 {
				if end, err = v.storedUntil(w.ctx, of, w.at, end, s.present()); err != nil || !w.at.Before(end) {
					return nil, time.Now().Add(moveEvery), err
				}
			}
			return &keepwatch.Batch{From: w.at.Revision, To: end.Revision}, none, nil // a bookmark
		}
		to, most := end, replayBytes
		if len(points) == w.few && points[w.few-1].Before(end) {
			to = points[w.few-1]
		}
		if len(points) == 1 { // the changes of a revision are one batch
			most = 0
		}
		states, err := v.between(w.ctx, Objects{Resource: of.ID.Resource, Namespace: of.ID.Namespace}, w.at, to, false, most)
		if err == errTooLarge {
			w.few = len(points) / 2
			continue
		}
		if err != nil {
			return nil, none, err
		}
		if bytesOf(states) < replayBytes/4 {
			w.few = min(2*w.few, batchPoints)
		}
		if w.rest, w.upTo = s.changes(states, w.at, to), to; len(w.rest) == 0 {
			return &keepwatch.Batch{From: w.at.Revision, To: to.Revision}, none, nil
		}
		for i := range w.rest {
			w.rest[i].seen = stored(w.rest[i].seen)
		}
		return nil, none, nil
	}
	return nil, none, nil
}

// take returns those of rest that are due at a time, and at least the first revision of them.
func (w *replay) take(now time.Time) *keepwatch.Batch {
	batch := &keepwatch.Batch{From: w.at.Revision, To: w.upTo.Revision}
	for i, c := range w.rest {
		if i > 0 && c.Revision > w.rest[i-1].Revision && w.source.dueAt(c.seen).After(now) {
			batch.To = w.rest[i-1].Revision
			w.rest = w.rest[i:]
			return batch
		}
		batch.Changes = append(batch.Changes, c.Change)
	}
	w.rest = nil
	return batch
}

// move returns a bookmark before the next change of the resource, at what was stored of all resources by now: a client
// that resumes there does not wait from the resource's last change on again. It returns nil if nothing was.
func (w *replay) move() (batch *keepwatch.Batch, err error) {
	w.moved = time.Now()
	s := w.source
	err = s.history.View(w.ctx, func(v *View) error {
		of, err := v.StreamOf(s.options.Resource, s.options.Namespace)
		if err != nil {
			return keepwatch.Failed(keepwatch.Absent, "%w", err)
		}
		to := sink.Point{Epoch: w.at.Epoch, Revision: w.rest[0].Revision - 1}
		if to, err = v.storedUntil(w.ctx, of, w.at, to, s.present()); err != nil || !w.at.Before(to) {
			return err
		}
		before, err := v.SeenAt(w.ctx, of, w.at)
		if err != nil {
			return err
		}
		seen, err := v.SeenAt(w.ctx, of, to)
		if err == nil && seen.After(before) {
			batch = &keepwatch.Batch{From: w.at.Revision, To: to.Revision}
		}
		return err
	})
	return batch, err
}

// recorded is a change, and when it was stored.
type recorded struct {
	keepwatch.Change
	seen time.Time
}
