package store

import (
	"cmp"
	"fmt"

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
	// Readable fails for an object that Match cannot judge, and is asked before it. Nil
	// means that there are none. Match must be able to judge an object from the first
	// success on. A watcher that meets an object which it cannot judge fails with an
	// *Unreadable.
	Readable func(keepwatch.Object) error
}

// Unreadable is the failure of a watcher at a change that its filter cannot judge,
// because the object or its prior state is not readable. Everything before the change
// was delivered. The failure is not permanent: the next call asks again.
type Unreadable struct {
	// Change is the change as it is without the filter.
	Change keepwatch.Change
	// Err is what Filter.Readable failed with.
	Err error
}

func (u *Unreadable) Error() string {
	return fmt.Sprintf("%s %s at %d: %v", u.Change.Type, u.Change.Object.Key(), u.Change.Revision, u.Err)
}

func (u *Unreadable) Unwrap() error { return u.Err }

// all reports whether the filter selects everything.
func (f Filter) all() bool { return f.Namespace == "" && f.Name == "" && f.Match == nil }

// covers reports whether objects of a key can be in the view.
func (f Filter) covers(key keepwatch.Key) bool {
	return (f.Namespace == "" || f.Namespace == key.Namespace) && (f.Name == "" || f.Name == key.Name)
}

// matches reports whether an object that the filter covers is in the view.
func (f Filter) matches(o keepwatch.Object) (bool, error) {
	if f.Match == nil {
		return true, nil
	}
	if f.Readable != nil {
		if err := f.Readable(o); err != nil {
			return false, err
		}
	}
	return f.Match(o), nil
}

// through shows a change as the view sees it (P10): entering the filter is Added,
// leaving it is Deleted with the state before and the revision of the event. That
// is the change's own, or in a gap, where it is not known, end. It reports false
// when the view does not change, and fails with an *Unreadable.
func (f Filter) through(c keepwatch.Change, end keepwatch.Revision) (_ keepwatch.Change, ok bool, _ *Unreadable) {
	if !f.covers(c.Object.Key()) {
		return keepwatch.Change{}, false, nil
	}
	var before, after bool
	var err error
	if c.Prior != nil {
		before, err = f.matches(c.Prior)
	}
	if err == nil && c.Type != keepwatch.Deleted {
		after, err = f.matches(c.Object)
	}
	switch {
	case err != nil:
		return keepwatch.Change{}, false, &Unreadable{c, err}
	case before && (after || c.Type == keepwatch.Deleted):
		return c, true, nil
	case before:
		return removed(c.Prior, c.Prior, cmp.Or(end, c.Revision)), true, nil
	case after:
		return keepwatch.Change{Type: keepwatch.Added, Revision: c.Revision, Object: c.Object}, true, nil
	}
	return keepwatch.Change{}, false, nil
}

// view is what a filter leaves of changes; end is that of the gap which tells of
// them, 0 in a batch. It returns them as they are, without a copy, when there is
// nothing to leave out. If it fails with an *Unreadable, it returns what is left of the
// changes before that one.
func (f Filter) view(changes []keepwatch.Change, end keepwatch.Revision) ([]keepwatch.Change, *Unreadable) {
	if f.all() {
		return changes, nil
	}
	var kept []keepwatch.Change
	for _, c := range changes {
		c, ok, unreadable := f.through(c, end)
		if unreadable != nil {
			return kept, unreadable
		}
		if ok {
			kept = append(kept, c)
		}
	}
	return kept, nil
}
