package keepwatch

import (
	"fmt"
	"strconv"
)

// ChangeType is how an object changed in a consumer's view. The set is closed.
type ChangeType uint8

const (
	Added    ChangeType = iota + 1 // the object entered the view
	Modified                       // the object is in the view, in another state
	Deleted                        // the object left the view
)

// String returns the watch event type of the Kubernetes API.
func (t ChangeType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Modified:
		return "MODIFIED"
	case Deleted:
		return "DELETED"
	}
	return fmt.Sprintf("ChangeType(%d)", uint8(t))
}

// Change is one event: an object's new state at a revision.
type Change struct {
	Type ChangeType
	// Revision is the revision of the change. For Added and Modified in a batch it is the
	// object's own. For Deleted it is the deletion's; within a gap, where that is
	// unknown, it is the gap's end.
	Revision Revision
	// Object is the new state; for Deleted the last known one. Never nil.
	Object Object
	// Prior is the state that Object replaces, or the deleted one. Changes from a store
	// have it, changes from a source do not. Nil for Added.
	Prior Object
}

// ID returns an identifier that is the same each time the change is delivered:
// "uid/revision", with the suffix "/deleted" for Deleted. The revision is the one in
// Object: in a watch event the deletion's, in a gap the last known one, so that a
// difference that is computed twice has the same ids.
func (c Change) ID() string { return c.id("") }

// IDAgain returns an identifier for a change of an object that was delivered as deleted, and is delivered again in the
// same state: "uid/revision/n". n is another one each time, so that a consumer that ignores the identifiers that it has
// seen accepts the change.
func (c Change) IDAgain(n uint64) string { return c.id("/" + strconv.FormatUint(n, 10)) }

func (c Change) id(again string) string {
	id := string(c.Object.UID()) + "/" + c.Object.Revision().String() + again
	if c.Type == Deleted {
		return id + "/deleted"
	}
	return id
}

// Delivery is a [Batch] or a [Gap], which is all that a consumer receives. The set is
// closed.
type Delivery interface{ delivery() }

func (Batch) delivery() {}
func (Gap) delivery()   {}

// Batch is the complete history of a view over (From, To]: whole revisions, in
// order, each change once (P2, P8). A batch without changes is a bookmark: nothing
// changed in the view between From and To (P9).
type Batch struct {
	// From is excluded: the changes are above it.
	From Revision
	// To is included: no change is above it.
	To      Revision
	Changes []Change
}

// Bookmark reports whether the batch carries progress alone.
func (b Batch) Bookmark() bool { return len(b.Changes) == 0 }

// Progress reports whether the batch reaches beyond its last change, as a bookmark does: a source may join a
// bookmark to the changes before it. For a view that has none of the changes the batch is a bookmark.
func (b Batch) Progress() bool { return b.Bookmark() || b.To > b.Changes[len(b.Changes)-1].Revision }

// GapReason is why a part of the history is delivered as a difference of states.
type GapReason string

const (
	// GapExpired: the source no longer has the history after the cursor, did not deliver
	// it, or sent something that cannot be trusted.
	GapExpired GapReason = "expired"
	// GapDowntime: the history expired while no process followed it.
	GapDowntime GapReason = "downtime"
	// GapRewind: the source went back in time (an etcd restored from a backup);
	// To may be less than From.
	GapRewind GapReason = "rewind"
)

// Gap replaces the history of (From, To] where the source no longer has it: the
// difference of the states at its ends (P3). An object that was created and deleted in
// between is not in it.
type Gap struct {
	// From is the revision of the state that the changes begin with. The history above it
	// is missing.
	From Revision
	// To is the revision of the state that the changes lead to.
	To      Revision
	Reason  GapReason
	Changes []Change
}
