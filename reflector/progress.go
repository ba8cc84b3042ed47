package reflector

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// State is what a reflector is doing, for people and health checks. The values
// are closed.
type State string

const (
	Syncing      State = "SYNCING"      // listing for the first time
	Live         State = "LIVE"         // following the history
	Stalled      State = "STALLED"      // the source can't be reached or answers with errors
	Relisting    State = "RELISTING"    // listing again, to emit the difference
	Unauthorized State = "UNAUTHORIZED" // the credentials are refused
	Forbidden    State = "FORBIDDEN"    // the credentials do not allow it
	Absent       State = "ABSENT"       // the resource is not served
	Stopped      State = "STOPPED"      // Run has returned, or was never called
)

// Verdict is what a failure led to. The values are closed.
type Verdict string

const (
	Resume    Verdict = "resume"     // watch on from the held revision
	Verify    Verdict = "verify"     // ask for the newest revision, then watch on
	RelistNow Verdict = "relist"     // history can't be followed: list, and emit the difference
	ListAgain Verdict = "list again" // a list failed: the same page, or from the start
	Proceed   Verdict = "proceed"    // what failed was not needed: watch from the held revision
	Skip      Verdict = "skip"       // one object of a list can't be read: continue without it
	Stop      Verdict = "stop"       // give up
)

// Progress is a reflector's account of itself at one moment.
type Progress struct {
	State State
	Since time.Time // when State began
	// Lost is since when it has not been Live, whatever else it has been meanwhile; zero
	// while it is, and while it does not run.
	Lost time.Time
	// Held is the revision up to which the target is equal to the source.
	Revision keepwatch.Revision
	// LastEvent is when the last change arrived.
	LastEvent time.Time
	// LastProof is when the source last proved that we are current: by a change, a
	// bookmark or the end of a list, or by the held revision being its newest. While
	// it is known to have a newer one, changes on the way there prove nothing.
	LastConfirmed time.Time
	// Relists and Reconnects count by the kind of failure that led to them. The
	// first list is none.
	Relists    map[keepwatch.FailureKind]uint64
	Reconnects map[keepwatch.FailureKind]uint64
	// Dropped counts changes that were not news.
	Dropped uint64
	// Withheld is how many objects of the last complete list had to be left out, each
	// reported in a notice; the state is the source's but for those.
	Skipped int
	// LastFailure is the newest failure, nil if there was none.
	LastFailure *keepwatch.Failure
}

// Notice tells an observer what a reflector has just met or decided; each is one
// line on a person's terminal.
type Notice struct {
	Time  time.Time
	State State
	// Failure is why; nil for progress.
	Failure *keepwatch.Failure
	// Verdict is what will be done about it; empty for progress.
	Verdict Verdict
	// Wait is how long the reflector waits before it does so.
	Wait time.Duration
	// Listed and Remaining count objects while a list runs; Remaining is the
	// server's estimate, 0 when it gives none.
	Listed, Remaining int64
	// Held is the revision the target holds.
	Revision keepwatch.Revision
}
