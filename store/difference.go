package store

import "github.com/keepwatch/keepwatch"

// since fails if the difference since a cursor is not known. Since the zero cursor it is
// the whole state.
func (v *view) since(c Cursor, f Filter) error {
	if c.Revision == 0 || c.Epoch == v.snapshot.epoch && v.graveyard.coversSince(c.Revision) &&
		(f.Match == nil || v.attributes.coversSince(c.Revision)) {
		return nil
	}
	return keepwatch.Failed(keepwatch.Expired,
		"too old resource version: %d (%d)", c.Revision, v.window.oldest(v.snapshot.Cursor()))
}

// difference returns the changes since a revision behind the window: deletions from the
// tombstones, the rest from the tree. Without an attribute log it is not known which
// objects matched a filter at that revision. An object that existed then is therefore
// Modified if it matches now, and Deleted if not.
func (v *view) difference(r keepwatch.Revision, f Filter) (changes []keepwatch.Change, unreadable *Unreadable) {
	if f.Match != nil && v.attributes.enabled && r > 0 {
		return v.selectedDifference(r, f)
	}
	v.graveyard.since(r, func(t tombstone) {
		if t.created <= r && f.covers(t.object.Key()) {
			changes = append(changes, v.removedBy(t.object, t.revision))
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
			changes = append(changes, removed(e.object, e.object, v.snapshot.revision))
		}
	})
	return changes, unreadable
}

// removedBy returns the change of an object that left by a revision: at the end of the difference, if its exact
// revision is not known.
func (v *view) removedBy(last keepwatch.Object, left keepwatch.Revision) keepwatch.Change {
	if v.graveyard.revealed(left) {
		left = v.snapshot.revision
	}
	return removed(last, last, left)
}

// since returns the change to an entry that was stored after a revision.
func (e *entry) since(r keepwatch.Revision) keepwatch.Change {
	if e.created > r {
		return added(e.object)
	}
	return keepwatch.Change{Type: keepwatch.Modified, Revision: e.object.Revision(), Object: e.object}
}
