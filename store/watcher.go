package store

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// Cursor is a position in a store's history. The zero value is the position before all
// history.
type Cursor struct {
	// Epoch counts how often the source's history was replaced: the source went back in
	// time, or returned another state for a revision than before. It starts at zero in each
	// process; a consumer of another process is in the current epoch.
	Epoch    uint64
	Revision keepwatch.Revision
}

// before reports whether c comes earlier than d.
func (c Cursor) before(d Cursor) bool {
	return c.Epoch < d.Epoch || c.Epoch == d.Epoch && c.Revision < d.Revision
}

// Watcher is a consumer: a cursor and a filter. It pulls; the store queues nothing for it,
// so that a slow watcher costs the others nothing. It has no goroutine, retains no state of
// the store, and needs no closing. It is not for concurrent use.
type Watcher struct {
	store  *Store
	filter Filter
	cursor Cursor
	// delivered is the revision up to which the last delivery reached.
	delivered keepwatch.Revision
	end       error  // of the watcher, which is permanent
	scope     *scope // nil for a filter without a namespace and a name
	// value is the scope of the filter's term; nil if the filter has none, or a name.
	value *termScope
	// seen is the number of the newest view whose changes were all delivered.
	seen uint64
}

// Watch returns a watcher of the changes after a cursor. From the zero cursor the first
// delivery is the whole state, as a gap.
func (s *Store) Watch(from Cursor, filter Filter) *Watcher {
	w := &Watcher{store: s, filter: filter, cursor: from, delivered: from.Revision, scope: s.notifiers.scopeOf(filter)}
	if filter.Name == "" {
		w.value = s.valueOf(filter.Term)
	}
	return w
}

// Cursor returns the position up to which everything was delivered. It may be ahead of
// the last delivery, if no change after that passed the filter.
func (w *Watcher) Cursor() Cursor { return w.cursor }

// Next waits for the next delivery: a batch while the window reaches back to the cursor,
// else a gap. A batch without changes is a bookmark, and follows a bookmark of the source, or changes
// that the filter does not pass and that the source has joined to a bookmark; see [keepwatch.Batch.Progress].
// Next fails with ctx's cause; permanently with a *keepwatch.Failure of kind Expired, when
// the difference since the cursor is no longer known; and with an *Unreadable at a change
// that the filter cannot judge. Deliveries share memory and must not be changed.
func (w *Watcher) Next(ctx context.Context) (keepwatch.Delivery, error) {
	for ctx.Err() == nil {
		d, newer, err := w.TryNext()
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

// TryNext returns the next delivery without blocking. While it returns a delivery there may be
// more; when it returns nil, the store closes the channel once there may be a delivery.
// Idle watchers share channels: one for all, and some for watchers whose filter has a
// namespace, a name or a term, which stay open while other objects change.
func (w *Watcher) TryNext() (keepwatch.Delivery, <-chan struct{}, error) {
	changed := &w.store.notifiers.all
	if w.value != nil {
		changed = &w.value.notifier
	} else if w.scope != nil {
		changed = &w.scope.notifier
	}
	v := w.store.view.Load()
	for {
		d, err := w.advance(v)
		if d != nil || err != nil {
			return d, nil, err
		}
		newer := changed.wait()
		again := w.store.view.Load()
		if again == v {
			return nil, newer, nil
		}
		v = again
	}
}

// advance moves the cursor through a view up to the next delivery, nil if there is none.
func (w *Watcher) advance(v *view) (keepwatch.Delivery, error) {
	now := v.snapshot.Cursor()
	switch {
	case w.end != nil:
		return nil, w.end
	case !w.cursor.before(now):
		w.seen = v.number
		return nil, nil
	case w.scope != nil && w.scope.lastChanged.Load() <= w.seen:
		w.cursor = now
		return w.finish(v, v.bookmark > w.seen), nil
	case w.value != nil:
		if d, ok, err := w.advanceByTerm(v); ok {
			return d, err
		}
	}
	i, ok := v.window.since(w.cursor)
	if !ok {
		return w.jump(v)
	}
	bookmark := false
	for ; i < v.window.len(); i++ {
		e := v.window.at(i)
		seen := w.cursor.Revision
		if w.filter.all() && e.from == (Cursor{e.from.Epoch, seen}) && w.delivered == seen && len(e.changes()) > 0 {
			w.cursor = e.to
			return w.deliver(e.delivery), nil // without a copy
		}
		switch d := e.delivery.(type) {
		case keepwatch.Gap:
			changes, unreadable := w.filter.filter(d.Changes, d.To)
			if unreadable != nil {
				return nil, unreadable
			}
			w.cursor = e.to
			return w.deliver(keepwatch.Gap{From: w.delivered, To: d.To, Reason: d.Reason, Changes: changes}), nil
		case keepwatch.Batch:
			bookmark = bookmark || d.Progress()
			changes, unreadable := w.filter.filter(after(d.Changes, seen), 0)
			w.cursor = e.to
			if unreadable != nil {
				return w.stopBefore(changes, unreadable)
			}
			if len(changes) > 0 {
				return w.deliver(keepwatch.Batch{From: w.delivered, To: d.To, Changes: changes}), nil
			}
		}
	}
	return w.finish(v, bookmark), nil
}

// finish marks a view as seen. It returns a bookmark if the view had one.
func (w *Watcher) finish(v *view, bookmark bool) keepwatch.Delivery {
	w.seen = v.number
	if !bookmark {
		return nil
	}
	return w.deliver(keepwatch.Batch{From: w.delivered, To: w.cursor.Revision})
}

// stopBefore moves the cursor before the revision of a change that the filter cannot
// judge. It delivers the changes of earlier revisions (P8), and fails if there are none.
func (w *Watcher) stopBefore(changes []keepwatch.Change, at *Unreadable) (keepwatch.Delivery, error) {
	w.cursor.Revision = at.Change.Revision - 1
	for len(changes) > 0 && changes[len(changes)-1].Revision > w.cursor.Revision {
		changes = changes[:len(changes)-1]
	}
	if len(changes) == 0 {
		return nil, at
	}
	return w.deliver(keepwatch.Batch{From: w.delivered, To: w.cursor.Revision, Changes: changes}), nil
}

// deliver returns a delivery that reaches up to the cursor.
func (w *Watcher) deliver(d keepwatch.Delivery) keepwatch.Delivery {
	w.delivered = w.cursor.Revision
	return d
}

// after returns the changes after r.
func after(changes []keepwatch.Change, r keepwatch.Revision) []keepwatch.Change {
	for len(changes) > 0 && changes[0].Revision <= r {
		changes = changes[1:]
	}
	return changes
}

// jump moves the cursor to the newest state and returns a gap.
func (w *Watcher) jump(v *view) (keepwatch.Delivery, error) {
	if w.end = v.since(w.cursor, w.filter); w.end != nil {
		return nil, w.end
	}
	changes, unreadable := v.difference(w.cursor.Revision, w.filter)
	if unreadable != nil {
		return nil, unreadable
	}
	gap := keepwatch.Gap{From: w.delivered, To: v.snapshot.revision, Reason: keepwatch.GapExpired, Changes: changes}
	w.cursor, w.seen = v.snapshot.Cursor(), v.number
	return w.deliver(gap), nil
}
