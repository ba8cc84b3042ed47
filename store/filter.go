package store

import (
	"cmp"

	"github.com/keepwatch/keepwatch"
)

// Filter selects the objects of a consumer's view. The zero value selects all.
type Filter struct {
	// Namespace and Name select by key; empty selects all. What an object's key says
	// holds for its whole life, so that they are exact even behind the window.
	Namespace, Name string
	// Match selects by content; nil selects all. It must answer the same for the
	// same object, always, and be safe to call from any goroutine that watches.
	Match func(keepwatch.Object) bool
}

// all reports whether the filter selects everything.
func (f Filter) all() bool { return f.Namespace == "" && f.Name == "" && f.Match == nil }

// covers reports whether objects of a key can be in the view.
func (f Filter) covers(key keepwatch.Key) bool {
	return (f.Namespace == "" || f.Namespace == key.Namespace) && (f.Name == "" || f.Name == key.Name)
}

// selects reports whether an object is in the view.
func (f Filter) selects(o keepwatch.Object) bool {
	return f.covers(o.Key()) && (f.Match == nil || f.Match(o))
}

// through shows a change as the view sees it (P10): entering the filter is Added,
// leaving it is Deleted with the state before and the revision of the event. That
// is the change's own, or in a gap, where it is not known, end. It reports false
// when the view does not change.
func (f Filter) through(c keepwatch.Change, end keepwatch.Revision) (keepwatch.Change, bool) {
	if !f.covers(c.Object.Key()) {
		return keepwatch.Change{}, false
	}
	before := c.Prior != nil && f.selects(c.Prior)
	after := c.Type != keepwatch.Deleted && f.selects(c.Object)
	switch {
	case before && (after || c.Type == keepwatch.Deleted):
		return c, true
	case before:
		return removed(c.Prior, c.Prior, cmp.Or(end, c.Revision)), true
	case after:
		return keepwatch.Change{Type: keepwatch.Added, Revision: c.Revision, Object: c.Object}, true
	}
	return keepwatch.Change{}, false
}

// view is what a filter leaves of changes; end is that of the gap which tells of
// them, 0 in a batch. It returns them as they are, without a copy, when there is
// nothing to leave out.
func (f Filter) view(changes []keepwatch.Change, end keepwatch.Revision) []keepwatch.Change {
	if f.all() {
		return changes
	}
	var kept []keepwatch.Change
	for _, c := range changes {
		if c, ok := f.through(c, end); ok {
			kept = append(kept, c)
		}
	}
	return kept
}
