package operators

import (
	"runtime"
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

// quiet measures how long nothing has happened, in time that has passed for the judge and for the operator: while the
// judge stands still, none passes, and none while the operator is stopped or waits for a processor.
type quiet struct {
	least time.Duration // of time that makes an operator quiet
	// held returns the part of the time since the last call in which the operator would have run and could not, from 0
	// to 1. It is nil if that cannot be known.
	held func() float64

	time     time.Duration // without activity
	longest  time.Duration // of such times that have ended, in this step
	whole    time.Duration // with it
	looked   time.Time
	last     activity
	revision keepwatch.Revision

	since time.Time // when the count of reads began
	reads int       // before that

	checked time.Time     // when held was called
	counted time.Duration // since then
	left    time.Duration // that the operator may be held in this step
}

const (
	// pollPause is the time between two looks at the operator.
	pollPause = 10 * time.Millisecond
	// checkPause is the time between two questions whether the operator is held.
	checkPause = 100 * time.Millisecond
	// maxHeld bounds the time that is left out of a step because the operator is held: it may be stopped for ever.
	maxHeld = 10 * time.Minute
	// fewReads is the number of reads in Options.Quiet that end the quiet, so that an operator may poll now and then.
	fewReads = 5
	// manyActions is the number of writes or reads in a step from which an operator that is not quiet in time is
	// restless. With less, it has more time.
	manyActions = 100
	moreTime    = 5
)

// begin begins a step.
func (q *quiet) begin() { q.time, q.longest, q.left = 0, 0, maxHeld }

// look adds the time since the last look, or begins again. It reports whether the operator is about to be taken for
// quiet: the time has become a multiple of the least one.
func (q *quiet) look(now time.Time, a activity, revision keepwatch.Revision) bool {
	var passed time.Duration
	if !q.looked.IsZero() {
		passed = min(now.Sub(q.looked), 2*pollPause)
	}
	before := q.time
	changed := int64(revision-q.revision) > a.unseen-q.last.unseen
	switch {
	case changed || a.actions != q.last.actions || a.inFlight > 0 || a.dying || a.reads-q.reads >= fewReads:
		q.longest = max(q.longest, q.time)
		q.time, q.reads, q.since = 0, a.reads, now
	case now.Sub(q.since) >= q.least:
		q.reads, q.since = a.reads, now
		fallthrough
	default:
		q.time += passed
	}
	q.whole += passed
	q.counted += passed
	q.looked, q.last, q.revision = now, a, revision
	isDue := func() bool { return q.time/q.least > before/q.least }
	if q.held != nil && (isDue() || now.Sub(q.checked) >= checkPause) {
		q.check(now) // may take back what made it due
	}
	return isDue()
}

// turns is the number of times that every goroutine may run before an operator is taken for quiet. What it has to do
// may be on its way through the server, the connection, and its own goroutines if it is a function.
const turns = 50

// letOthersRun returns when the goroutines that can run have run. On an idle machine that is at once.
func letOthersRun() {
	for range turns {
		runtime.Gosched()
	}
}

// check takes back what was counted while the operator was held. It is called often enough that this is little, and
// before the operator is taken for quiet.
func (q *quiet) check(now time.Time) {
	held := min(time.Duration(q.held()*float64(q.counted)), q.left)
	q.time, q.whole, q.left = max(q.time-held, 0), q.whole-held, q.left-held
	q.checked, q.counted = now, 0
}
