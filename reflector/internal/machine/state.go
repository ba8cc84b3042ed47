package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// State is a state of the protocol. The set is closed.
type State interface{ state() }

// Fresh is the state before Started.
type Fresh struct{}

// Listing is the state in which a list is read.
type Listing struct {
	List
	// Read is the page that is being stored. It is empty before the first.
	Read paging.Page
}

// Watching is the state in which a watch from the target's revision is open or being opened.
type Watching struct {
	// Advanced: the watch has advanced the target's revision, or the source has confirmed it.
	Advanced bool
	// AfterList: the watch begins at a list's revision and has delivered nothing yet.
	AfterList bool
}

// Probing is the state in which the source is asked for its newest revision: at the start,
// or after a watch from the target's revision was idle.
type Probing struct {
	// Start: it is the first request of a run. A server sends nothing on a watch that begins
	// at its newest revision, so nothing else shows soon that the target is current. The
	// watch does not depend on the answer: a probe that fails is repeated when a watch is
	// open.
	Start bool
	// WatchOpen: a watch is open and is read after the probe.
	WatchOpen bool
}

// Comparing is the state in which the source is asked whether the resource has changed: watches
// were silent, and the source has a newer revision, which may be another resource's.
type Comparing struct{}

// Confirming is the state in which the target receives the confirmation that it is current.
type Confirming struct {
	WatchOpen bool // a watch is open and is read next
	// To is the revision at which the target is current.
	To keepwatch.Revision
}

// Waiting is the state before Then, which is performed when the wait is over.
type Waiting struct{ Then Action }

// Stopped is final.
type Stopped struct{ Cause keepwatch.FailureKind }

func (Fresh) state()      {}
func (Listing) state()    {}
func (Watching) state()   {}
func (Probing) state()    {}
func (Comparing) state()  {}
func (Confirming) state() {}
func (Waiting) state()    {}
func (Stopped) state()    {}

// Machine is the protocol's state and memory. A machine with the state Fresh and a Config is
// ready for Started. Machines are comparable: two equal ones behave the same.
type Machine struct {
	Config
	State State

	// Revision is the target's revision, 0 if it has none.
	Revision keepwatch.Revision
	// Newest is a revision above Revision that the source has reported. The target is
	// current when it has reached it. 0 if there is none.
	Newest keepwatch.Revision
	// RepeatProbe: the probe at the start failed, or the source did not answer and
	// Config.ProbeAfterOutage is set, and nothing has confirmed since that the source has the
	// target's revision. The next watch that opens is followed by a probe.
	RepeatProbe bool
	// Synced: a list was committed or a watch opened in this run.
	Synced bool
	// Received: the target has received a list or a batch in this run. Until then the
	// reason of a relist is the time in which no reflector ran. An open watch is not enough:
	// servers report 410 inside the watch.
	Received bool
	// NoStreaming: the source has refused a streaming list, or FailedStreams has reached its
	// limit. The source is not asked for one again.
	NoStreaming bool
	// FailedStreams counts the streaming lists since the last progress that failed in a way in
	// which a paged list may succeed.
	FailedStreams uint8
	// Silent: watches did not deliver what the source had, and no watch has advanced the target
	// since. The target is brought up to date by lists, at most one in each idle timeout or
	// quietLimit, or for ten watches that were reset.
	Silent bool
	// Quiet is how long watches were open, in total, since the target's revision was last
	// advanced or confirmed, and how long the waits after those watches are on average. At most
	// quietLimit. Watches that end before they are idle, or that repeat one bookmark, may be
	// silent, too. The time in which the source accepts no watch is not part of it.
	Quiet time.Duration
	// Breaches counts the watches in a row that broke the contract soon after they were opened.
	// A list in between is no progress: it succeeds each time.
	Breaches uint8
	// Retries counts the failures since the last progress.
	Retries Retries
	// Failure is the failure that the reflector's state shows, 0 if none. Progress clears it,
	// and so do a part of a list and a watch that stays open for SteadyWatch. Opening a watch does
	// not clear it, nor does a probe that leads to another watch, because a server may accept each
	// watch and reset it.
	Failure keepwatch.FailureKind
}

// Config does not change during a run.
type Config struct {
	// Paged: ask for no streaming list.
	Paged bool
	// ProbeAfterOutage is documented at reflector.Options.
	ProbeAfterOutage bool
	// StartupDeadline is documented at reflector.Options.
	StartupDeadline time.Duration
}

// Retries counts failures in a row without progress. Progress (an event, a bookmark, a page)
// clears it, but a page that is not the last one leaves Restarts. Time does not clear it, nor does a
// part of a streaming list, which is discarded if the rest fails. A probe that leaves Machine.Failure
// leaves Attempts, too.
type Retries struct {
	// Attempts determines the backoff.
	Attempts uint8
	// ByKind counts the failures of each kind whose rule has a Then, for its MaxRetries.
	// Failures of other kinds in between do not change the count.
	ByKind [keepwatch.LastFailureKind + 1]uint8
	// Restarts counts the times that a list started over after its first page. The pages that
	// are discarded then were no progress. Invariant: Restarts <= Attempts.
	Restarts uint8
	// RevisionDeadline is the time since Started at which the wait for a revision ends that
	// the source has not reached. 0 if there is no such wait.
	RevisionDeadline time.Duration
}
