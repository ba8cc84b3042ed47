package check

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Transcript is what one consumer received, in order.
type Transcript struct {
	// From is the cursor at which the consumer began, in the epoch with the index Epoch. Its
	// state is that revision's view. Zero: it began empty.
	From  keepwatch.Revision
	Epoch int

	Records []Record

	// Over is true if the consumer has ended. The transcript must then contain its Ended
	// (P13). If Over is false, the transcript may stop after any record.
	Over bool
	// Calm has the time at which faults and writes stopped. If it is nil, P11 is not judged.
	Calm *Calm
}

// Calm is the part of a transcript without faults and writes, for P11. The transcript must
// last until At + Within, or until the consumer's end.
type Calm struct {
	// At is the time at which faults and writes stopped.
	At time.Time
	// Within is the time that a consumer may need to reach the newest revision: idle
	// timeout + backoff cap + relist time.
	Within time.Duration
}

// Record is one line of a transcript: [Received], [Shown], [Resumed] or [Ended].
// The set is closed.
type Record interface{ record() }

// Received is a delivery to the consumer. A batch without changes is a bookmark.
type Received struct {
	Delivery keepwatch.Delivery
	// At is the time of the delivery: before or after a restore, and for P11. If it is zero,
	// neither is judged.
	At time.Time
	// HistoryFrom is the oldest revision from which the sender had the exact history when
	// it made the delivery: a gap from there or later breaks P3. If it is zero, that is not
	// judged.
	HistoryFrom keepwatch.Revision
}

// Shown is the view of the consumer, or of the store that it reads, at a revision. Judge
// compares it with the history's view (P4).
type Shown struct {
	Revision keepwatch.Revision
	Objects  []keepwatch.Object // each key once, in any order
}

// Resumed records that the consumer started again, after a crash or an end, at a stored
// cursor and with its view of that time. Cursor zero: it started empty.
type Resumed struct{ Cursor keepwatch.Revision }

// Ended is the end of the consumer's stream.
type Ended struct {
	// Err is the reason the stream gave: a *keepwatch.Failure, or Asked.
	Err error
	// Asked is the error with which the owner ended the stream, a context's cause for example.
	// It is nil if the owner did not end the stream.
	Asked error
	// At is the time of the end. P11 does not apply to a consumer that has ended.
	At time.Time
}

func (Received) record() {}
func (Shown) record()    {}
func (Resumed) record()  {}
func (Ended) record()    {}
