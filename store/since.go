package store

import "github.com/keepwatch/keepwatch"

// Since returns the changes from a snapshot to the newest one, for a consumer that has a
// snapshot instead of a cursor. It closes newer once a newer snapshot is published. The
// zero snapshot precedes all history.
//
// If the window reaches back to the snapshot and has at most limit changes since, they are
// the exact history. Otherwise they are the difference of the two states, in key order, at
// most two changes a key. Every change has its prior state. The object of a deletion is
// older than the change if its final state is not known, because a gap showed it. The
// result shares memory and must not be changed. Since does not block.
func (s *Store) Since(seen *Snapshot, limit int) (changes []keepwatch.Change, now *Snapshot, newer <-chan struct{}) {
	newer = s.notifiers.all.wait() // before the view is loaded, so that none is missed
	v := s.view.Load()
	if !seen.Cursor().before(v.snapshot.Cursor()) {
		return nil, v.snapshot, newer
	}
	if changes, ok := v.window.after(seen.Cursor(), limit); ok {
		return changes, v.snapshot, newer
	}
	changes = seen.Diff(v.snapshot)
	if seen.epoch == v.snapshot.epoch {
		v.graveyard.fillDeleted(changes, seen.revision)
	}
	return changes, v.snapshot, newer
}

// after returns the changes after a cursor, if the window has them and they are at most
// limit.
func (w window) after(c Cursor, limit int) (changes []keepwatch.Change, ok bool) {
	first, ok := w.since(c)
	if !ok || w.at(first).from != c {
		return nil, false
	}
	n := 0
	for i := first; i < w.len(); i++ {
		n += len(w.at(i).changes())
	}
	if n > limit {
		return nil, false
	}
	if first == w.len()-1 {
		return w.at(first).changes(), true
	}
	changes = make([]keepwatch.Change, 0, n)
	for i := first; i < w.len(); i++ {
		changes = append(changes, w.at(i).changes()...)
	}
	return changes, true
}

// objectID identifies an object from its creation to its deletion.
type objectID struct {
	key keepwatch.Key
	uid keepwatch.UID
}

// fillDeleted sets the final states of the deletions of a difference since a revision, as
// far as they are stored completely.
func (g *graveyard) fillDeleted(changes []keepwatch.Change, r keepwatch.Revision) {
	open := map[objectID]*keepwatch.Change{}
	for i := range changes {
		if c := &changes[i]; c.Type == keepwatch.Deleted {
			open[objectID{c.Object.Key(), c.Object.UID()}] = c
		}
	}
	if len(open) == 0 {
		return
	}
	for i := g.full.len() - 1; i >= 0 && g.full.at(i).revision > r; i-- {
		t := g.full.at(i)
		if c := open[objectID{t.object.Key(), t.object.UID()}]; c != nil {
			c.Object, c.Revision = t.object, t.revision
		}
	}
}
