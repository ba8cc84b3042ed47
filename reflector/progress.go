package reflector

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// State is a reflector's state, for people and health checks. The set is closed.
type State string

const (
	Syncing      State = "SYNCING"      // listing for the first time
	Live         State = "LIVE"         // watching, or about to watch again
	Stalled      State = "STALLED"      // the source is unreachable or answers with errors
	Stale        State = "STALE"        // watches stay silent although the resource changes; lists replace them
	Relisting    State = "RELISTING"    // listing again, to deliver the difference
	Unauthorized State = "UNAUTHORIZED" // the source rejects the credentials
	Forbidden    State = "FORBIDDEN"    // the credentials do not permit the request
	Absent       State = "ABSENT"       // the resource is not served
	Stopped      State = "STOPPED"      // Run is not running
)

// Decision is what the reflector does about a failure. The set is closed.
type Decision string

const (
	Resume    Decision = "resume"     // watch again from the target's revision
	Verify    Decision = "verify"     // ask for the newest revision, then watch again
	Relist    Decision = "relist"     // the watch cannot continue: list, and deliver the difference
	ListAgain Decision = "list again" // a list failed: read the same page again, or start over
	Proceed   Decision = "proceed"    // the failed request was optional: watch from the target's revision
	Skip      Decision = "skip"       // an object of a list can't be read: continue without it
	Stop      Decision = "stop"       // end Run with the failure
)

// Progress is a reflector's state and counts at one moment.
type Progress struct {
	State State
	Since time.Time // when State began
	// NotLiveSince is the time since which State has not been Live, through all other
	// states. It is zero while State is Live or Stopped.
	NotLiveSince time.Time
	// Revision is the revision up to which the target equals the source.
	Revision keepwatch.Revision
	// LastEvent is when the last change was delivered.
	LastEvent time.Time
	// LastConfirmed is when the source last confirmed that the target is current: by a
	// change, a bookmark, the end of a list, or its newest revision. While the source is
	// known to have a newer revision, the changes below that revision do not count.
	LastConfirmed time.Time
	// Relists and Reconnects count by the kind of failure that led to them. The
	// first list is none.
	Relists    map[keepwatch.FailureKind]uint64
	Reconnects map[keepwatch.FailureKind]uint64
	// Dropped counts the duplicate and outdated changes that the target dropped.
	Dropped uint64
	// Skipped is the number of objects of the last complete list that could not be read. A
	// notice reported each. The target equals the source except for them.
	Skipped int
	// LastFailure is the newest failure, nil if there was none.
	LastFailure *keepwatch.Failure
}

// Notice reports a failure and the decision on it, or the progress of a list.
type Notice struct {
	// Time is when the failure or the progress occurred.
	Time time.Time
	// State is the reflector's state after the decision.
	State State
	// Failure is the failure, nil for progress.
	Failure *keepwatch.Failure
	// Decision is what the reflector does about it, empty for progress.
	Decision Decision
	// Wait is how long the reflector waits before it does so.
	Wait time.Duration
	// Listed and Remaining count objects while a list runs; Remaining is the
	// server's estimate, 0 when it gives none.
	Listed, Remaining int64
	// Revision is the target's revision.
	Revision keepwatch.Revision
}
