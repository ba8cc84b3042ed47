package keepwatch

import "context"

// Target is what a reflector keeps equal to its source: a store, or a stream
// that hands the changes on and remembers only what it has told.
//
// A reflector calls its target from one goroutine. A target may block (a full
// pipe, a disk): that is back pressure, and the source's connection takes it.
// A *[Failure] returned by a target is judged by the same table as the
// source's: Expired, ProtocolViolation and the like lead to a relist. Any other
// error stops the reflector.
type Target interface {
	// Held is the revision up to which the target holds the source's state; zero
	// when it holds none and has to be listed first.
	Held() Revision

	// Apply takes the next piece of history. It drops and counts changes that are
	// not news (a duplicate, an older state of a key) and never lets an old state
	// win; news at or below Held is a ProtocolViolation. It returns how many
	// changes it dropped.
	//
	// A batch without changes that begins and ends at Held is a proof of currency:
	// the source was asked for its newest revision, and Held has reached it. A target
	// that tells whether it is current can say so.
	Apply(ctx context.Context, batch Batch) (dropped int, err error)

	// Replace begins to replace the whole state by a list. What is held stays until
	// the replacement is committed, and stays for good when it is discarded.
	Replace(ctx context.Context, relist Relist) (Replacement, error)
}

// Relist says why a state is being replaced, and by what.
type Relist struct {
	// Reason is why history could not be followed; of no meaning for a first list
	// (Held zero).
	Reason GapReason
	// To is the list's revision, zero while it is not known. It is only unknown for
	// a target that holds nothing, since only first lists are streamed.
	To Revision
}

// Replacement is a list on its way into a target.
type Replacement interface {
	// Put takes the next objects of the list. One that equals what is held is no
	// change; the same object may come twice.
	Put(ctx context.Context, objects []Object) error
	// Commit says that everything was put: what was not is deleted, and the
	// target now holds the source's state at revision to.
	Commit(ctx context.Context, to Revision) error
	// Discard gives the list up. The target keeps what it knew; a target that has
	// already handed on some of the list remembers that.
	Discard()
}
