package store

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// Cursor is a place in a store's history. The zero value is the place before
// everything.
type Cursor struct {
	// Epoch counts how often the past turned out to be another one: the source went
	// back in time, or showed a revision in another state than before. It does not
	// outlive the process; a consumer that comes from elsewhere is in the current
	// epoch.
	Epoch    uint64
	Revision keepwatch.Revision
}

// before reports whether c comes earlier than d.
func (c Cursor) before(d Cursor) bool {
	return c.Epoch < d.Epoch || c.Epoch == d.Epoch && c.Revision < d.Revision
}

// Watcher is a consumer: a cursor and a filter. It is pulled; nothing is queued
// for it, so that a slow one costs the others nothing. It holds no goroutine and
// nothing of the store, and needs no closing. Not for concurrent use.
type Watcher struct {
	store  *Store
	filter Filter
	cursor Cursor
	told   keepwatch.Revision // where the next delivery starts
	end    error
	scope  *scope // nil for a filter that has none
	// seen is the number of the newest view that was read to its end.
	seen uint64
}

// Watch makes a watcher that goes on after a cursor. From the zero cursor the
// first delivery is the whole state.
func (s *Store) Watch(from Cursor, filter Filter) *Watcher {
	return &Watcher{store: s, filter: filter, cursor: from, told: from.Revision, scope: s.bells.of(filter)}
}

// Cursor is the place up to which everything was delivered. It may be ahead of
// the last delivery, when what followed did not concern the view.
func (w *Watcher) Cursor() Cursor { return w.cursor }

// Next blocks for the next delivery: a batch while the history is in the window,
// else a gap. A batch without changes is a bookmark and comes when the source
// sent one. It ends with ctx's cause, or for good with a *keepwatch.Failure of
// kind Expired, when not even the difference is known any more. It fails with an
// *Unreadable at a change that the filter cannot judge. Deliveries share memory and
// must not be changed.
func (w *Watcher) Next(ctx context.Context) (keepwatch.Delivery, error) {
	for ctx.Err() == nil {
		d, newer, err := w.Poll()
		if d != nil || err != nil {
			return d, err
		}
		select {
		case <-newer:
		case <-ctx.Done():
		}
	}
	return nil, context.Cause(ctx)
}

// Poll is Next without blocking. While it returns a delivery there may be more;
// when it returns nil, the channel is closed once it is worth another try. Idle
// watchers share channels: there is one for all, and some for those whose filter
// names a namespace or a name, which stay open while others change.
func (w *Watcher) Poll() (keepwatch.Delivery, <-chan struct{}, error) {
	bell := &w.store.bells.every
	if w.scope != nil {
		bell = &w.scope.bell
	}
	v := w.store.view.Load()
	for {
		d, err := w.take(v)
		if d != nil || err != nil {
			return d, nil, err
		}
		newer := bell.hear()
		again := w.store.view.Load()
		if again == v {
			return nil, newer, nil
		}
		v = again
	}
}

// take moves the cursor through what a view has for it.
func (w *Watcher) take(v *view) (keepwatch.Delivery, error) {
	now := v.snapshot.Cursor()
	switch {
	case w.end != nil:
		return nil, w.end
	case !w.cursor.before(now):
		w.seen = v.number
		return nil, nil
	case w.scope != nil && w.scope.touched.Load() <= w.seen:
		w.cursor = now
		return w.rest(v, v.bookmark > w.seen), nil
	}
	i, ok := v.window.since(w.cursor)
	if !ok {
		return w.leap(v)
	}
	bookmark := false
	for ; i < v.window.len(); i++ {
		m := v.window.at(i)
		seen := w.cursor.Revision
		if w.filter.all() && m.from == (Cursor{m.from.Epoch, seen}) && w.told == seen && len(m.changes()) > 0 {
			w.cursor = m.to
			return w.tell(m.delivery), nil // as it is, without a copy
		}
		switch d := m.delivery.(type) {
		case keepwatch.Gap:
			changes, unreadable := w.filter.view(d.Changes, d.To)
			if unreadable != nil {
				return nil, unreadable
			}
			w.cursor = m.to
			return w.tell(keepwatch.Gap{From: w.told, To: d.To, Reason: d.Reason, Changes: changes}), nil
		case keepwatch.Batch:
			bookmark = bookmark || d.Bookmark()
			changes, unreadable := w.filter.view(after(d.Changes, seen), 0)
			w.cursor = m.to
			if unreadable != nil {
				return w.stop(changes, unreadable)
			}
			if len(changes) > 0 {
				return w.tell(keepwatch.Batch{From: w.told, To: d.To, Changes: changes}), nil
			}
		}
	}
	return w.rest(v, bookmark), nil
}

// rest ends a view that has no more changes: by a bookmark if there was one.
func (w *Watcher) rest(v *view, bookmark bool) keepwatch.Delivery {
	w.seen = v.number
	if !bookmark {
		return nil
	}
	return w.tell(keepwatch.Batch{From: w.told, To: w.cursor.Revision})
}

// stop moves the cursor to right before the revision of a change that the filter cannot
// judge. It delivers those of the changes before it that are of earlier revisions (P8),
// and fails when there are none.
func (w *Watcher) stop(changes []keepwatch.Change, at *Unreadable) (keepwatch.Delivery, error) {
	w.cursor.Revision = at.Change.Revision - 1
	for len(changes) > 0 && changes[len(changes)-1].Revision > w.cursor.Revision {
		changes = changes[:len(changes)-1]
	}
	if len(changes) == 0 {
		return nil, at
	}
	return w.tell(keepwatch.Batch{From: w.told, To: w.cursor.Revision, Changes: changes}), nil
}

// tell hands out a delivery up to the cursor.
func (w *Watcher) tell(d keepwatch.Delivery) keepwatch.Delivery {
	w.told = w.cursor.Revision
	return d
}

// after leaves out the changes up to r of a batch that begins earlier.
func after(changes []keepwatch.Change, r keepwatch.Revision) []keepwatch.Change {
	for len(changes) > 0 && changes[0].Revision <= r {
		changes = changes[1:]
	}
	return changes
}

// leap goes to the newest state by a gap.
func (w *Watcher) leap(v *view) (keepwatch.Delivery, error) {
	if w.end = v.since(w.cursor, w.filter); w.end != nil {
		return nil, w.end
	}
	changes, unreadable := v.difference(w.cursor.Revision, w.filter)
	if unreadable != nil {
		return nil, unreadable
	}
	gap := keepwatch.Gap{From: w.told, To: v.snapshot.revision, Reason: keepwatch.GapExpired, Changes: changes}
	w.cursor, w.seen = v.snapshot.Cursor(), v.number
	return w.tell(gap), nil
}
