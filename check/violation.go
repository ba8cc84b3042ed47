package check

import "fmt"

// Promise is the number of a promise in package keepwatch.
type Promise uint8

// The promises that Judge judges. P12, bounds, has no constant: it cannot be judged from a
// transcript.
const (
	// P1 is contiguity: each delivery starts at the consumer's cursor.
	P1 Promise = iota + 1
	// P2 is completeness: a batch has every change of the view once, in order.
	P2
	// P3 is the gap: it is declared, and is the difference of two states.
	P3
	// P4 is the fold: the deliveries up to a revision result in the view at that revision.
	P4
	// P5 is monotonicity: the revision of an object with one UID only rises.
	P5
	// P6 is deletes: an object that leaves the view is Deleted, with its last known state.
	P6
	// P7 is no resurrection: a deleted object does not appear again at or below the
	// revision of its deletion.
	P7
	// P8 is atomicity: the changes of one revision are in one batch.
	P8
	// P9 is bookmarks: everything up to a bookmark's revision was delivered before it.
	P9
	// P10 is filter edges: entering the view is Added, leaving it is Deleted.
	P10
	// P11 is convergence: after faults and writes stop, the consumer reaches the newest revision
	// in time.
	P11
	_
	// P13 is the clean end: a stream ends once, with a typed reason.
	P13
)

// names are the names of the promises in package keepwatch.
var names = [...]string{
	P1: "contiguity", P2: "completeness", P3: "gap", P4: "fold", P5: "monotonic", P6: "deletes",
	P7: "no resurrection", P8: "atomic", P9: "bookmarks", P10: "filter edges", P11: "convergence", P13: "clean end",
}

// String returns the number of the promise: "P1".
func (p Promise) String() string { return fmt.Sprintf("P%d", uint8(p)) }

// Violation is a record of a transcript that breaks a promise.
type Violation struct {
	Promise Promise
	// Record is the index of the record in the transcript, or len(Records) if a record is
	// missing at its end.
	Record int
	// Change is the index of the change in the record's delivery, or -1 for the whole
	// record.
	Change int
	// Want and Got disagree: Want follows from the history, Got was received.
	Want, Got string
}

// String returns the violation as one line for people.
func (v Violation) String() string {
	record := fmt.Sprintf("record %d", v.Record)
	if v.Change >= 0 {
		record += fmt.Sprintf(", change %d", v.Change)
	}
	return fmt.Sprintf("%s breaks %s (%s): the history requires %s; the consumer received %s",
		record, v.Promise, names[v.Promise], v.Want, v.Got)
}
