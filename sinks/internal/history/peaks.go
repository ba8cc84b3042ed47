package history

import "time"

// Peaks are the greatest points of resources at some times, which a database has in its table of that name: what was
// stored before the time is not after the point. With the next one after a time, the greatest point that was stored
// until then is found among few states, however many are later.
type Peaks struct {
	// Every is how many changes of a resource are stored until its next peak is.
	Every int
	since map[string]int
	// newest is the time of the newest peak. A batch with an earlier time ends those after it, since it may exceed them.
	newest time.Time
	// Rows is how many rows are read with each batch for the peaks of what a version without them has stored.
	Rows  int
	fills []*Fill // that are not complete
}

// peakEvery makes a thousandth of the rows of states, and a read of a millisecond.
const peakEvery = 1000

// fillRows are read in some hundredths of a second.
const fillRows = 10_000

// NewPeaks returns the peaks of a database that nothing is known of.
func NewPeaks() Peaks { return Peaks{Every: peakEvery, Rows: fillRows} }

// Load begins with what a database has. The next change of each resource stores a peak: how many there were since the
// last one is not known. fills are of all resources whose history has begun.
func (p *Peaks) Load(newest time.Time, fills []*Fill) {
	p.since, p.newest, p.fills = map[string]int{}, newest, fills
}

// Add counts the changes of a resource in a batch with a time. It reports whether its peak is to be stored.
func (p *Peaks) Add(resource string, changes Changes) bool {
	n := len(changes.Rows) + len(changes.Endings)
	if n == 0 {
		return false
	}
	since, ok := p.since[resource]
	if since += n; ok && since < p.Every {
		p.since[resource] = since
		return false
	}
	p.since[resource] = 0
	return true
}

// Exceeded reports whether peaks after the time of a batch are not true any more.
func (p *Peaks) Exceeded(now time.Time) bool { return now.Before(p.newest) }

// Stored is called when a batch was stored, with its peaks.
func (p *Peaks) Stored(now time.Time) { p.newest = now }

// Filling returns the search that continues with a batch, whose rows and peaks are written. It returns nil if all are
// complete.
func (p *Peaks) Filling(now time.Time) *Fill {
	if len(p.fills) == 0 {
		return nil
	}
	p.fills[0].reach(now)
	return p.fills[0]
}

// Filled is called when the search that Filling has returned is complete.
func (p *Peaks) Filled() { p.fills = p.fills[1:] }
