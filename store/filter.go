package store

import (
	"cmp"
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// Filter selects the objects of a consumer's view. The zero value selects all objects.
type Filter struct {
	// Namespace and Name select by key; empty selects all. An object's key never changes,
	// so that they are exact even behind the window.
	Namespace, Name string
	// Match selects by content; nil selects all. It must always return the same for the
	// same object, and be safe for concurrent use.
	Match func(keepwatch.Object) bool
	// Term, if set, is an equality that Match implies: Options.Term returns its value for each object that Match selects.
	// It has no influence on the view.
	Term *Term
	// Readable fails for an object that Match cannot judge; it is called before Match. Nil
	// means that Match can judge every object. Once Readable succeeded for an object, Match
	// must be able to judge it. A watcher fails with an *Unreadable at an object that it
	// cannot judge.
	Readable func(keepwatch.Object) error
}

// Unreadable is the failure of a watcher at a change that its filter cannot judge,
// because the object or its prior state is not readable. Everything before the change
// was delivered. The failure is not permanent: the next call tries again.
type Unreadable struct {
	// Change is the change without the filter.
	Change keepwatch.Change
	// Err is the error of Filter.Readable.
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

// apply returns a change as the view sees it (P10): an object that enters the filter is
// Added; one that leaves it is Deleted, with its prior state and the revision of the event:
// that of the change, or end in a gap, where it is not known. It reports false when the
// view does not change, and fails with an *Unreadable.
func (f Filter) apply(c keepwatch.Change, end keepwatch.Revision) (_ keepwatch.Change, ok bool, _ *Unreadable) {
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

// filter applies the filter to changes; end is the end of the gap that has them, 0 in a
// batch. It does not copy them if the filter selects everything. If it fails with an
// *Unreadable, it returns the changes before that one.
func (f Filter) filter(changes []keepwatch.Change, end keepwatch.Revision) ([]keepwatch.Change, *Unreadable) {
	if f.all() {
		return changes, nil
	}
	var selected []keepwatch.Change
	for _, c := range changes {
		c, ok, unreadable := f.apply(c, end)
		if unreadable != nil {
			return selected, unreadable
		}
		if ok {
			selected = append(selected, c)
		}
	}
	return selected, nil
}
