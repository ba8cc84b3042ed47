package check

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// History has all writes that a source has committed: one epoch, and one more for each time
// it was restored from a backup. It must be complete.
type History struct {
	// Epochs in the order of time. At least one.
	Epochs []Epoch

	// Content returns the part of an object that must arrive unchanged, besides its key,
	// UID and revision. It returns "" if that is not known, for example for an object of
	// which a tombstone is left. A nil Content compares key, UID and revision only.
	Content func(keepwatch.Object) string

	// Redefined reports whether two objects that are the same state look different, because the definition of their type
	// has changed in between. A gap may then deliver the later one as Modified, at the same revision. Nil: never.
	Redefined func(a, b keepwatch.Object) bool
}

// Epoch is the history between two restores.
type Epoch struct {
	// Base is the revision of the earlier epoch that the source was restored to; later
	// writes of that epoch are undone. It is zero in the first epoch, which begins empty.
	Base keepwatch.Revision
	// Writes in the order of their commits. Invariant: revisions are above Base and
	// never fall. Writes with one revision were committed in one transaction.
	Writes []Write
	// Last is the newest revision, if it is above the last write's: writes of other
	// resources have revisions, too.
	Last keepwatch.Revision
	// Began is the time of the restore. A delivery before it is not of this epoch, even if
	// it would fit. Zero: unknown.
	Began time.Time
}

// Write is one committed write.
type Write struct {
	Revision keepwatch.Revision
	Key      keepwatch.Key
	// Object is the new state, or nil for a delete. Invariant: it has the write's key and
	// revision. If its UID differs from the earlier one, the write deleted the object and
	// created another one.
	Object keepwatch.Object
}

// Filter selects the objects of a view, like store.Filter. A nil Filter selects all.
type Filter func(keepwatch.Object) bool

func (f Filter) match(o keepwatch.Object) bool { return o != nil && (f == nil || f(o)) }
