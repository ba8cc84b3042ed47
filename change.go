package keepwatch

import "fmt"

// ChangeType says how a view changed. The values are closed.
type ChangeType uint8

const (
	Added    ChangeType = iota + 1 // the object entered the view
	Modified                       // the object is in the view, in another state
	Deleted                        // the object left the view
)

// String is the watch event type of the Kubernetes API.
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

// Change is one event: what an object became at a revision.
type Change struct {
	Type ChangeType
	// Revision is when it happened. For Added and Modified in a batch it is the
	// object's own. For Deleted it is the deletion's; within a gap, where that is
	// unknown, it is the gap's end.
	Revision Revision
	// Object is the new state; for Deleted the last known one. Never nil.
	Object Object
	// Prior is the state that Object replaces or that was deleted, where the
	// giver knows it: a store always does, a source never. Nil for Added.
	Prior Object
}

// ID identifies the change in every repetition of it: "uid/revision", with
// "/deleted" behind it for Deleted. The revision is the one the carried object
// shows: a Kubernetes watch event shows the deletion's, a gap the last one known,
// so that a difference computed twice carries the same ids twice.
func (c Change) ID() string {
	id := string(c.Object.UID()) + "/" + c.Object.Revision().String()
	if c.Type == Deleted {
		return id + "/deleted"
	}
	return id
}

// Delivery is what a consumer receives: a [Batch] or a [Gap]. The set is closed.
type Delivery interface{ delivery() }

func (Batch) delivery() {}
func (Gap) delivery()   {}

// Batch is the complete history of a view over (From, To]: whole revisions, in
// order, each change once (P2, P8). A batch without changes is a bookmark: it
// says that nothing happened on the way to To (P9).
type Batch struct {
	From, To Revision
	Changes  []Change
}

// Bookmark reports whether the batch carries progress alone.
func (b Batch) Bookmark() bool { return len(b.Changes) == 0 }

// GapReason says why a part of the history is given as a difference of states.
type GapReason string

const (
	// GapExpired: the source no longer has the history from the cursor on, or what
	// it gave of it could not be trusted.
	GapExpired GapReason = "expired"
	// GapDowntime: the history expired while nobody was following.
	GapDowntime GapReason = "downtime"
	// GapRewind: the source went back in time (an etcd restored from a backup);
	// To may be less than From.
	GapRewind GapReason = "rewind"
)

// Gap is what is known of (From, To] when the history itself is gone: the
// difference of the states at its ends (P3). Objects that came and went in
// between are not in it.
type Gap struct {
	From, To Revision
	Reason   GapReason
	Changes  []Change
}
