package history

import (
	"time"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Stored is where a row begins or ends, and when that was stored. As a peak, nothing that was stored before Seen is
// after the point.
type Stored struct {
	sink.Point
	Seen time.Time
}

// Fill finds the peaks of what a version without them has stored of a resource, a few rows at a time, from the last
// point to the first one: what was stored before all rows after a point is not after it. Each peak is true whether the
// others are there or not, so that a reader needs not know how far the search is, and the next process continues at
// the earliest one that is stored.
type Fill struct {
	Resource string
	// First is when its history begins: no time before is asked for.
	First time.Time
	// Next is the last row that was read. Those before it in the order of points and times are next.
	Next  Stored
	edge  Stored // the point of Next, and the least time of the rows after it
	least time.Time
	rows  int // since the last peak
}

// Begun reports whether Begin was called.
func (f *Fill) Begun() bool { return f.Next.Revision > 0 }

// Begin begins with the earliest peak that is stored.
func (f *Fill) Begin(earliest Stored) {
	f.edge, f.least = earliest, earliest.Seen
	f.Next = Stored{Point: sink.Point{Epoch: earliest.Epoch, Revision: earliest.Revision + 1}}
}

// reach makes a row possible that was stored after any point at a time.
func (f *Fill) reach(now time.Time) {
	if now.Before(f.least) {
		f.least = now
	}
	if now.Before(f.edge.Seen) {
		f.edge.Seen = now
	}
}

// Add adds the next rows, the last one first. It returns peaks, one every so many rows, and whether the rest of the
// rows was stored before the history begins.
func (f *Fill) Add(rows []Stored, every int) (peaks []Stored, done bool) {
	for _, r := range rows {
		if r.Point != f.edge.Point {
			f.edge = Stored{r.Point, f.least}
			if f.rows >= every {
				peaks, f.rows = append(peaks, f.edge), 0
			}
		}
		f.rows++
		f.Next = r
		if r.Seen.Before(f.least) {
			f.least = r.Seen
		}
		if !f.least.After(f.First) {
			return append(peaks, f.edge), true
		}
	}
	return peaks, false
}
