package keepwatch

import "context"

// Target receives a source's state and history from a reflector, which keeps the two
// equal. A store is a Target that keeps the objects; a stream is one that writes the
// changes on and remembers only what it has written.
//
// A reflector makes one call of its target at a time. A target may block (a full
// pipe, a disk): the reflector then stops reading from the source, and the connection's
// flow control holds the source back.
// A *[Failure] returned by a target gets a verdict from the same table as the
// source's: Expired, ProtocolViolation and the like lead to a relist. Any other
// error stops the reflector.
type Target interface {
	// Revision returns the revision up to which the target equals the source, which is
	// where a watch continues. It returns zero when the target needs a list first: it
	// is empty, or it was invalidated.
	Revision() Revision

	// Invalidate marks the target's state as one that no watch can continue from, and
	// records why: the source went back to an earlier time (GapRewind), or sent
	// something that cannot be trusted (GapExpired, GapDowntime). A reflector calls it as
	// soon as it has decided so, before it asks for the list that replaces the state:
	// the list may fail for a long time, and the process may end first. At its next start
	// the source may have passed the target's revision again, and a revision does not
	// show which history it belongs to.
	//
	// From then on Revision returns zero until a replacement is committed: in later runs
	// of a reflector and, if the target outlives the process, in later processes. The
	// objects stay. Their difference from the list is one gap with this reason, unless
	// the relist is a rewind. On an empty target, Invalidate has no effect. If it is called
	// again, the newest reason replaces the earlier one. An error, which is never a
	// *Failure, stops the reflector.
	Invalidate(ctx context.Context, reason GapReason) error

	// Apply adds a batch to the state and returns how many of its changes it dropped.
	// It drops duplicates and older states of a key, so that an old state never replaces
	// a newer one. A new change at or below Revision is a ProtocolViolation.
	//
	// A batch without changes that begins and ends at Revision confirms that the target
	// is current: the source was asked for its newest revision, and it is Revision.
	Apply(ctx context.Context, batch Batch) (dropped int, err error)

	// Replace begins to replace the whole state by a list. The state stays as it is
	// until the replacement is committed, and permanently if it is discarded.
	Replace(ctx context.Context, relist Relist) (Replacement, error)
}

// Relist describes a list that replaces a target's state.
type Relist struct {
	// Reason is why the watch could not continue. It is empty for the first list of a run
	// that began with revision zero; an invalidated target has recorded its own reason.
	Reason GapReason
	// To is the list's revision. It is zero while unknown, which happens only while the
	// target's revision is zero, because only first lists are streamed. A target that
	// needs it for a gap all the same returns [StreamingListUnsupported].
	To Revision
}

// Replacement receives a list in parts. One goroutine calls its methods. None is called
// after Discard or after a Commit that succeeded; Discard may follow a Commit that failed.
type Replacement interface {
	// Put adds objects of the list. An object that equals the one in the state is no
	// change. At an equal revision the content decides, as far as the target can compare it:
	// what the list shows replaces the state. The same object may be put twice. Put may replace elements of the slice, and
	// must not retain it.
	Put(ctx context.Context, objects []Object) error
	// Commit makes the objects that were put the whole state, at revision to. Every
	// other object is deleted.
	Commit(ctx context.Context, to Revision) error
	// Discard drops the list. The target keeps its state; a target that has already
	// delivered a part of the list remembers which.
	Discard()
}
