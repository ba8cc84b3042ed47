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
	// Held is the revision from which the history can be followed: up to it the
	// target holds the source's state. Zero when it has to be listed first, because it
	// holds none or what it holds is void.
	Held() Revision

	// Void says that what is held can't be gone on from, and why: the source went
	// back to a time before it (GapRewind), or what it gave could not be trusted
	// (GapExpired, GapDowntime). A reflector says so as soon as it is decided, before
	// it asks for the list that will mend it. That may take long to succeed, and the
	// process may end before; by the next start the source may be ahead of what is held
	// again, and its revisions would not tell that they are of another history.
	//
	// From then on Held is zero until a replacement is committed: in later runs of a
	// reflector, too, and where the target outlives the process, in later processes,
	// from the moment that Void returns. What is held stays, and what it differs in
	// from the list is one gap, called by this reason unless the relist is a rewind.
	// To a target that holds nothing it means nothing; said again, the newest reason
	// counts. An error, never a *Failure, stops the reflector.
	Void(ctx context.Context, reason GapReason) error

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
	// Reason is why history could not be followed; empty for the first list of a run
	// that begins with Held zero. Then a target that is void knows it.
	Reason GapReason
	// To is the list's revision, zero while it is not known, which it only is while
	// Held is zero, since only first lists are streamed. A target that needs it
	// nevertheless, for the gap, refuses with [StreamingListUnsupported].
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
