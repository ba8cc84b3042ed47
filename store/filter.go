package store

import "github.com/keepwatch/keepwatch"

// Filter selects the objects of a consumer's view. Nil selects all. It must
// answer the same for the same object, always.
type Filter func(keepwatch.Object) bool

// through shows a change as the view sees it (P10): entering the filter is Added,
// leaving it is Deleted with the state before and the revision of the event. It
// reports false when the view does not change.
func (f Filter) through(c keepwatch.Change) (keepwatch.Change, bool) {
	if f == nil {
		return c, true
	}
	before := c.Prior != nil && f(c.Prior)
	after := c.Type != keepwatch.Deleted && f(c.Object)
	switch {
	case before && after:
		return c, true
	case before && c.Type == keepwatch.Deleted:
		return c, true
	case before:
		return keepwatch.Change{Type: keepwatch.Deleted, Revision: c.Revision, Object: c.Prior, Prior: c.Prior}, true
	case after:
		return keepwatch.Change{Type: keepwatch.Added, Revision: c.Revision, Object: c.Object}, true
	}
	return keepwatch.Change{}, false
}

// view is what a filter leaves of changes. It returns them as they are, without
// a copy, when there is nothing to leave out.
func (f Filter) view(changes []keepwatch.Change) []keepwatch.Change {
	if f == nil {
		return changes
	}
	var kept []keepwatch.Change
	for _, c := range changes {
		if c, ok := f.through(c); ok {
			kept = append(kept, c)
		}
	}
	return kept
}
