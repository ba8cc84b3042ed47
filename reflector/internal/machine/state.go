package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// State is where the protocol stands. The set is closed.
type State interface{ state() }

// Fresh is the state before Started.
type Fresh struct{}

// Listing: a list is being read.
type Listing struct {
	List
	// Next is the token that the page in hand carries; empty on the last page and
	// before the first.
	Next string
}

// Watching: a watch from the held revision is open or being opened.
type Watching struct {
	// News: it has led to a revision that was not held before.
	News bool
	// Listed: it begins where a list has just ended, and has delivered nothing.
	Listed bool
}

// Probing: the source is asked for its newest revision, because a watch from ours
// has stayed silent, or because nobody was following until now.
type Probing struct {
	// Start: it is the first thing that is done. A server has no reason to send a
	// watch anything that begins at its newest revision, so that nothing else would
	// tell soon that nothing was missed; but the watch does not depend on it.
	Start bool
}

// Proving: the target is told that it is current.
type Confirming struct {
	Open bool // the watch is open, and goes on
}

// Waiting: Then begins when the wait is over.
type Waiting struct{ Then Action }

// Stopped is final.
type Stopped struct{ Cause keepwatch.FailureKind }

func (Fresh) state()      {}
func (Listing) state()    {}
func (Watching) state()   {}
func (Probing) state()    {}
func (Confirming) state() {}
func (Waiting) state()    {}
func (Stopped) state()    {}

// Machine is the protocol at one moment. The zero value, with a Config, is ready
// for Started. It is comparable: two equal machines behave the same for ever.
type Machine struct {
	Config
	State State

	// Held is the revision the target holds; 0 is nothing.
	Revision keepwatch.Revision
	// Newest is a revision beyond Held that the source has said to have; reaching it
	// proves that the target is current. 0 if there is none.
	Newest keepwatch.Revision
	// Synced: a list was completed or a watch opened, ever.
	Synced bool
	// Followed: the source's state or history has reached the target since the
	// start. Until then a relist is due to the time nobody was following. An open
	// watch alone proves nothing: servers report 410 inside it.
	Followed bool
	// NoStreaming: the source cannot stream lists; remembered for good.
	NoStreaming bool
	// Streak is what failed since the last progress.
	Streak Streak
	// Trouble is the failure that is visible as our state, 0 if none. Progress ends it, or
	// a part of a list, or a watch that stays open for SteadyWatch; that a watch was
	// opened does not, since a server may take each and reset it.
	Failure keepwatch.FailureKind
}

// Config is what never changes.
type Config struct {
	// Paged: never ask for a streaming list.
	Paged bool
	// StartupDeadline: see reflector.Options.
	StartupDeadline time.Duration
}

// Streak counts failures in a row without progress. Progress (an event, a
// bookmark, a page) clears it; the passing of time never does, nor a part of a
// streaming list, which is void when the rest does not come.
type Streak struct {
	// Attempts sets the backoff.
	Attempts uint8
	// Failed counts failures of each kind whose rule has an end, for its Patience. Those
	// of other kinds in between change nothing.
	Failed [keepwatch.LastFailureKind + 1]uint8
	// Until is when, since Started, a revision is not waited for any more that the
	// source has not reached; 0 if there is none.
	Until time.Duration
}
