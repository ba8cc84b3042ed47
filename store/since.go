package store

import "github.com/keepwatch/keepwatch"

// Since tells a consumer that holds a snapshot instead of a cursor how it became
// the newest one, and closes newer once that is not the newest any more. The zero
// snapshot is the one before everything.
//
// While the window reaches back and holds at most so many changes since, they are
// the exact history. Otherwise they are the difference of the two states, in key
// order, at most two changes a key. Either way every change knows the state before
// it, and a deletion whose object is older than the change tells that the final
// state is not known: a gap showed it. The result shares memory and must not be
// changed. It does not block.
func (s *Store) Since(seen *Snapshot, most int) (changes []keepwatch.Change, now *Snapshot, newer <-chan struct{}) {
	newer = s.bells.every.hear() // first, so that no view is missed
	v := s.view.Load()
	if !seen.Cursor().before(v.snapshot.Cursor()) {
		return nil, v.snapshot, newer
	}
	if changes, ok := v.window.after(seen.Cursor(), most); ok {
		return changes, v.snapshot, newer
	}
	changes = seen.Diff(v.snapshot)
	if seen.epoch == v.snapshot.epoch {
		v.graveyard.finish(changes, seen.revision)
	}
	return changes, v.snapshot, newer
}

// after is the history behind a cursor, if it is here and has at most so many
// changes.
func (w window) after(c Cursor, most int) (changes []keepwatch.Change, ok bool) {
	first, ok := w.since(c)
	if !ok || w.at(first).from != c {
		return nil, false
	}
	n := 0
	for i := first; i < w.len(); i++ {
		n += len(w.at(i).changes())
	}
	if n > most {
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

// life is one object from its creation to its end.
type life struct {
	key keepwatch.Key
	uid keepwatch.UID
}

// finish gives the deletions of a difference the final states that are kept in
// full of what was deleted after a revision.
func (g *graveyard) finish(changes []keepwatch.Change, r keepwatch.Revision) {
	open := map[life]*keepwatch.Change{}
	for i := range changes {
		if c := &changes[i]; c.Type == keepwatch.Deleted {
			open[life{c.Object.Key(), c.Object.UID()}] = c
		}
	}
	if len(open) == 0 {
		return
	}
	for i := g.full.len() - 1; i >= 0 && g.full.at(i).revision > r; i-- {
		t := g.full.at(i)
		if c := open[life{t.object.Key(), t.object.UID()}]; c != nil {
			c.Object, c.Revision = t.object, t.revision
		}
	}
}
