package machine

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Input is something that happened. The set is closed.
type Input interface{ input() }

// Started: Run was called with a target that holds Held.
type Started struct{ Revision keepwatch.Revision }

// Page: List read one page.
type Page struct {
	Revision keepwatch.Revision
	Continue string
}

// Kept: the page was put into the target, and committed if it was the last.
type PageStored struct{}

// Chunk: a part of a streaming list was put into the target.
type Chunk struct{}

// Streamed: the streaming list was committed at Revision; its watch is open.
type Streamed struct{ Revision keepwatch.Revision }

// Opened: the watch is open.
type Opened struct{}

// Delivered: the target took a batch and now holds Held.
type Delivered struct {
	Revision keepwatch.Revision
	// Bookmark: the batch carried progress alone, which has told the target already
	// how far the source is.
	Bookmark bool
}

// Probed: the source's newest revision is Revision.
type Probed struct{ Revision keepwatch.Revision }

// Unanswered: no answer to a Probe came within its time. It is no failure yet:
// whatever holds the source up, the watch will meet it.
type Unanswered struct{}

// Proven: the target was told that it is current.
type Confirmed struct{}

// Elapsed: the wait is over.
type Elapsed struct{}

// Failed: what was being done failed.
type Failed struct {
	Kind       keepwatch.FailureKind
	RetryAfter time.Duration // what the source asked for; 0 if nothing
	Lived      time.Duration // how long the watch was open; 0 if it was not
	Elapsed    time.Duration // since Started
}

func (Started) input()    {}
func (Page) input()       {}
func (PageStored) input() {}
func (Chunk) input()      {}
func (Streamed) input()   {}
func (Opened) input()     {}
func (Delivered) input()  {}
func (Probed) input()     {}
func (Unanswered) input() {}
func (Confirmed) input()  {}
func (Elapsed) input()    {}
func (Failed) input()     {}
