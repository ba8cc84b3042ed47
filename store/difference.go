package store

import "github.com/keepwatch/keepwatch"

// since fails when the difference to a cursor is not known. To the zero cursor
// it is the whole state, always.
func (v *view) since(c Cursor, f Filter) error {
	if c.Revision == 0 || c.Epoch == v.snapshot.epoch && v.graveyard.knows(c.Revision) && (f.Match == nil || v.attributes.knows(c.Revision)) {
		return nil
	}
	return keepwatch.Failed(keepwatch.Expired,
		"too old resource version: %d (%d)", c.Revision, v.window.oldest(v.snapshot.Cursor()))
}

// difference is what is known of the changes since a revision that is behind the
// window: deletions from the tombstones, the rest from the tree. Without a log of
// attributes, what of then matched a filter is not known. So what does not match now is
// Deleted rather than left, and what does is Modified if it was there at all.
func (v *view) difference(r keepwatch.Revision, f Filter) (changes []keepwatch.Change, unreadable *Unreadable) {
	if f.Match != nil && v.attributes.kept && r > 0 {
		return v.selected(r, f)
	}
	v.graveyard.since(r, func(t tombstone) {
		if t.created <= r && f.covers(t.object.Key()) {
			changes = append(changes, removed(t.object, t.object, t.revision))
		}
	})
	v.snapshot.tree.root.newer(r, f.Namespace, func(e *entry) {
		if !f.covers(e.object.Key()) || unreadable != nil {
			return
		}
		change := e.since(r)
		matches, err := f.matches(e.object)
		switch {
		case err != nil:
			unreadable = &Unreadable{change, err}
		case matches:
			changes = append(changes, change)
		case e.created <= r:
			changes = append(changes, removed(e.object, e.object, e.stored))
		}
	})
	return changes, unreadable
}

// since is the change to an entry that was stored after a revision.
func (e *entry) since(r keepwatch.Revision) keepwatch.Change {
	if e.created > r {
		return added(e.object)
	}
	return keepwatch.Change{Type: keepwatch.Modified, Revision: e.object.Revision(), Object: e.object}
}
