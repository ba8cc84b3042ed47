package check

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Transcript is what happened to one consumer, in order.
type Transcript struct {
	// From is the cursor that it began with, in the epoch with the index Epoch; it is
	// taken to hold that revision's view. Zero: it began with nothing.
	From  keepwatch.Revision
	Epoch int

	Records []Record

	// Over says that somebody waited for the consumer's end, so that it must have
	// one (P13). Otherwise the transcript may stop at any place.
	Over bool
	// Calm says when faults and writes stopped; nil if they did not, and P11 is not
	// judged then.
	Calm *Calm
}

// Calm is the time from which on nothing disturbs anybody. The transcript must
// go on until At + Within, or until the consumer's end.
type Calm struct {
	At time.Time
	// Within is how long a consumer may take from there to the newest revision:
	// idle timeout + backoff cap + relist time.
	Within time.Duration
}

// Record is one line of a transcript: [Received], [Shown], [Resumed] or [Ended].
// The set is closed.
type Record interface{ record() }

// Received is a delivery; a batch without changes is a bookmark.
type Received struct {
	Delivery keepwatch.Delivery
	// At tells what was received before a restore, and how long convergence took
	// (P11). Zero: neither is judged by it.
	At time.Time
	// Kept is the oldest revision since which the giver still knew the exact history
	// when it made the delivery: a gap from there or later breaks P3. Zero: not known,
	// and not judged.
	Kept keepwatch.Revision
}

// Shown is a view as the consumer, or the store it reads, showed it at a
// revision. It is compared with the history's (P4).
type Shown struct {
	Revision keepwatch.Revision
	Objects  []keepwatch.Object // each key once, in any order
}

// Resumed says that the consumer began anew with a cursor it had kept, and with
// the view that it had then: after a crash, or after an end. Zero: with nothing.
type Resumed struct{ Cursor keepwatch.Revision }

// Ended is the end of the consumer's stream.
type Ended struct {
	// Err is the reason the stream gave: a *keepwatch.Failure, or Asked.
	Err error
	// Asked is the reason for which its owner ended it, nil if it ended by itself.
	Asked error
	// At is only of meaning for P11, which a consumer that has ended need not keep.
	At time.Time
}

func (Received) record() {}
func (Shown) record()    {}
func (Resumed) record()  {}
func (Ended) record()    {}
