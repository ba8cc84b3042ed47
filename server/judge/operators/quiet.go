package operators

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// activity is what an operator has done, and is doing.
type activity struct {
	actions  int   // writes, starts, steps, and their ends: each of them ends the quiet
	reads    int   // lists, gets, discovery, and the beginnings of watches
	unseen   int64 // writes of Leases and the like, by anybody
	inFlight int   // requests that wait for an answer
	watches  int   // that are open
	dying    bool  // it is about to be killed
}

// quiet measures how long nothing has happened, in the time in which somebody looked: while the whole process stands
// still, no time passes.
type quiet struct {
	time     time.Duration // without activity
	longest  time.Duration // of such times that have ended, in this step
	whole    time.Duration // with it
	looked   time.Time
	last     activity
	reads    int // at the beginning of time
	revision keepwatch.Revision
}

const (
	// pollPause is the time between two looks at the operator.
	pollPause = 10 * time.Millisecond
	// fewReads is the number of reads that end the quiet, so that an operator may poll now and then.
	fewReads = 5
	// manyActions is the number of writes or reads in a step from which an operator that is not quiet in time is
	// restless. With less, it has more time.
	manyActions = 100
	moreTime    = 5
)

// begin begins a step.
func (q *quiet) begin() { q.time, q.longest = 0, 0 }

// look adds the time since the last look, or begins again.
func (q *quiet) look(now time.Time, a activity, revision keepwatch.Revision) {
	changed := int64(revision-q.revision) > a.unseen-q.last.unseen
	if changed || a.actions != q.last.actions || a.inFlight > 0 || a.dying || a.reads-q.reads >= fewReads {
		q.longest = max(q.longest, q.time)
		q.time, q.reads = 0, a.reads
	} else if !q.looked.IsZero() {
		q.time += min(now.Sub(q.looked), 2*pollPause)
	}
	if !q.looked.IsZero() {
		q.whole += min(now.Sub(q.looked), 2*pollPause)
	}
	q.looked, q.last, q.revision = now, a, revision
}
