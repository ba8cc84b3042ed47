package store

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// Cursor is a place in a store's history. The zero value is the place before
// everything.
type Cursor struct {
	// Epoch counts how often the source went back in time. It does not outlive the
	// process; a consumer that comes from elsewhere is in the current epoch.
	Epoch    uint64
	Revision keepwatch.Revision
}

// Cursor is the place of the snapshot.
func (s *Snapshot) Cursor() Cursor { return Cursor{Epoch: s.epoch, Revision: s.revision} }

// Watcher is a consumer: a cursor and a filter. It is pulled; nothing is queued
// for it, so that a slow one costs the others nothing. It holds no goroutine and
// nothing of the store, and needs no closing. Not for concurrent use.
type Watcher struct {
	store  *Store
	filter Filter
	cursor Cursor
	end    error
}

// Watch makes a watcher that goes on after a cursor.
func (s *Store) Watch(from Cursor, filter Filter) *Watcher {
	return &Watcher{store: s, filter: filter, cursor: from}
}

// Cursor is the place up to which everything was delivered.
func (w *Watcher) Cursor() Cursor { return w.cursor }

// Next blocks for the next delivery: a batch while the history is in the window,
// else a gap. A batch without changes is a bookmark and comes when the source
// sent one. It ends with ctx's cause, or for good with a *keepwatch.Failure of
// kind Expired, when not even the difference is known any more.
func (w *Watcher) Next(ctx context.Context) (keepwatch.Delivery, error) {
	for {
		v := w.store.view.Load()
		if d, err := w.take(v); d != nil || err != nil {
			return d, err
		}
		select {
		case <-v.newer:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Poll is Next without blocking: nil when there is nothing. The channel is
// closed when it is worth another try.
func (w *Watcher) Poll() (keepwatch.Delivery, <-chan struct{}, error) {
	v := w.store.view.Load()
	d, err := w.take(v)
	return d, v.newer, err
}

// take moves the cursor through what a view has for it.
func (w *Watcher) take(v *view) (keepwatch.Delivery, error) {
	if w.end != nil {
		return nil, w.end
	}
	if w.cursor.Epoch == v.snapshot.epoch && w.cursor.Revision >= v.snapshot.revision {
		return nil, nil
	}
	sequence, ok := v.window.since(w.cursor.Epoch, w.cursor.Revision)
	if !ok {
		return w.leap(v)
	}
	from, bookmark := w.cursor.Revision, false
	for ; sequence < v.window.end(); sequence++ {
		m := v.window.at(sequence)
		seen := w.cursor
		w.cursor = Cursor{Epoch: m.epoch, Revision: m.to}
		switch d := m.delivery.(type) {
		case keepwatch.Gap:
			return keepwatch.Gap{From: from, To: d.To, Reason: d.Reason, Changes: w.filter.view(d.Changes)}, nil
		case keepwatch.Batch:
			changes := w.filter.view(after(d.Changes, seen.Revision))
			if len(changes) > 0 {
				return keepwatch.Batch{From: from, To: d.To, Changes: changes}, nil
			}
			bookmark = d.Bookmark()
		}
	}
	if bookmark {
		return keepwatch.Batch{From: from, To: w.cursor.Revision}, nil
	}
	return nil, nil
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
	gap, err := v.difference(w.cursor, w.filter)
	if err != nil {
		w.end = err
		return nil, err
	}
	w.cursor = v.snapshot.Cursor()
	return gap, nil
}

// difference is what is known of the changes since a cursor behind the window:
// deletions from the tombstones, the rest from the state. Where a filter's answer
// of then can't be known, what does not match now is Deleted rather than left.
func (v *view) difference(since Cursor, filter Filter) (keepwatch.Gap, error) {
	r, now := since.Revision, v.snapshot
	fresh := since == Cursor{}
	if !fresh && (since.Epoch != now.epoch || r < v.graveyard.horizon) {
		return keepwatch.Gap{}, keepwatch.Failed(keepwatch.Expired,
			"too old resource version: %d (%d)", r, v.graveyard.horizon)
	}
	gap := keepwatch.Gap{From: r, To: now.revision, Reason: keepwatch.GapExpired}
	if !fresh {
		v.graveyard.since(r, func(t tombstone) {
			if t.created <= r {
				gap.Changes = append(gap.Changes, removed(t.object, t.revision))
			}
		})
	}
	now.tree.root.newer(r, func(e entry) {
		switch match := filter == nil || filter(e.object); {
		case match && (fresh || e.created > r):
			gap.Changes = append(gap.Changes, added(e.object))
		case match:
			gap.Changes = append(gap.Changes, keepwatch.Change{
				Type: keepwatch.Modified, Revision: e.object.Revision(), Object: e.object,
			})
		case !fresh && e.created <= r:
			gap.Changes = append(gap.Changes, removed(e.object, e.object.Revision()))
		}
	})
	return gap, nil
}
