package check

import "fmt"

// Promise is the number of a promise in package keepwatch.
type Promise uint8

const (
	P1 Promise = iota + 1
	P2
	P3
	P4
	P5
	P6
	P7
	P8
	P9
	P10
	P11
	_ // P12: no transcript shows it
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
