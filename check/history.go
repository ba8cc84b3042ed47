package check

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// History is what a source has committed: one epoch, and one more for each time
// it was restored from a backup. It must be complete: whatever is not in it did
// not happen.
type History struct {
	// Epochs in the order of time. At least one.
	Epochs []Epoch

	// Content shows what of an object has to arrive unchanged, beside its key, UID
	// and revision. Where it returns "", nothing is known: for what a tombstone has
	// left of an object, for example. A nil Content compares nothing more.
	Content func(keepwatch.Object) string
}

// Epoch is the history between two restores.
type Epoch struct {
	// Base is the revision of the epoch before that the source was restored to; its
	// later writes are undone. Zero in the first epoch, which begins with nothing.
	Base keepwatch.Revision
	// Writes in the order of their commits. Invariant: revisions are above Base and
	// never fall; several writes of one revision were committed as one.
	Writes []Write
	// Last is the newest revision, if that is above the last write's: the writes of
	// other resources count too.
	Last keepwatch.Revision
	// Began is when the source was restored: what was received before is not of this
	// epoch, even if it would fit. Zero: not known.
	Began time.Time
}

// Write is one committed write.
type Write struct {
	Revision keepwatch.Revision
	Key      keepwatch.Key
	// Object is what was written, nil for a delete. Invariant: it has the write's key
	// and revision. If its UID differs from the UID before, the write was a delete and
	// a create in one.
	Object keepwatch.Object
}

// Filter selects the objects of a view, like store.Filter. Nil selects all.
type Filter func(keepwatch.Object) bool

func (f Filter) match(o keepwatch.Object) bool { return o != nil && (f == nil || f(o)) }
