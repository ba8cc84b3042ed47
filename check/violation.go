package check

import "fmt"

// Promise is the number of a promise in package keepwatch.
type Promise uint8

const (
	P1  Promise = iota + 1 // contiguity
	P2                     // completeness
	P3                     // gap = state difference
	P4                     // fold
	P5                     // monotonic
	P6                     // deletes are seen
	P7                     // no resurrection
	P8                     // atomic
	P9                     // bookmarks are true
	P10                    // filter edges
	P11                    // convergence
	_                      // P12 is not in any transcript
	P13                    // clean end
)

// String is the promise's name: "P1".
func (p Promise) String() string { return fmt.Sprintf("P%d", uint8(p)) }

// Violation is a promise that was broken.
type Violation struct {
	Promise Promise
	// Record is the index of the record in the transcript; len(Records) when what is
	// wrong is that nothing came any more.
	Record int
	// Change is the index of the change in the record's delivery; -1 when it is the
	// record as a whole.
	Change int
	// Want and Got are the two facts that disagree: what follows from the history and
	// what was received.
	Want, Got string
}

// String is one line for people.
func (v Violation) String() string {
	place := fmt.Sprintf("record %d", v.Record)
	if v.Change >= 0 {
		place += fmt.Sprintf(", change %d", v.Change)
	}
	return fmt.Sprintf("%s broken at %s: want %s; got %s", v.Promise, place, v.Want, v.Got)
}
