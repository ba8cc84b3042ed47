package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/paging"
)

// Input is the outcome of an action. The set is closed.
type Input interface{ input() }

// Started is the first input: Run was called with a target at Revision, 0 if it needs a
// list.
type Started struct{ Revision keepwatch.Revision }

// Page reports that List read one page.
type Page struct {
	Revision keepwatch.Revision
	paging.Page
}

// PageStored reports that the page was put into the target, and committed if it was the
// last.
type PageStored struct{}

// Chunk reports that a part of a streaming list was put into the target.
type Chunk struct{}

// Streamed reports that the streaming list was committed at Revision. Its watch is open.
type Streamed struct{ Revision keepwatch.Revision }

// Opened reports that the watch is open.
type Opened struct{}

// Delivered reports that the target accepted a batch and is at Revision now.
type Delivered struct {
	Revision keepwatch.Revision
	// Bookmark is true for a batch that is a bookmark, or has one behind its changes. It has confirmed to the target
	// already that the target is current.
	Bookmark bool
}

// Probed reports the source's newest revision.
type Probed struct{ Revision keepwatch.Revision }

// ProbeTimedOut reports that a Probe had no answer within its Timeout. It is not a failure:
// if the source is unavailable, the watch fails too.
type ProbeTimedOut struct{}

// Unchanged reports that the resource has not changed up to Compare.To.
type Unchanged struct{}

// Confirmed reports that the target accepted ConfirmCurrent.
type Confirmed struct{}

// Elapsed reports that the wait is over.
type Elapsed struct{}

// Failed reports that the action failed.
type Failed struct {
	Kind       keepwatch.FailureKind
	RetryAfter time.Duration // the wait that the source asked for, 0 if none
	Accepted   bool          // the source had accepted the watch or the streaming list
	OpenFor    time.Duration // how long the watch was open, 0 if none was
	Elapsed    time.Duration // since Started
}

func (Started) input()       {}
func (Page) input()          {}
func (PageStored) input()    {}
func (Chunk) input()         {}
func (Streamed) input()      {}
func (Opened) input()        {}
func (Delivered) input()     {}
func (Probed) input()        {}
func (ProbeTimedOut) input() {}
func (Unchanged) input()     {}
func (Confirmed) input()     {}
func (Elapsed) input()       {}
func (Failed) input()        {}
