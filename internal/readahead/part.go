package readahead

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// maxJoined bounds the objects of a batch with parts that joined its newest revision, in bytes.
const maxJoined = 64 << 20

// maxOpens bounds how long Next waits for a batch whose parts open their revisions one after the other: in Opens.
const maxOpens = 5

// Part is what one message of a stream adds to a batch: a change, all changes of a
// revision, or progress without changes. The changes of a part are never split.
type Part struct {
	Changes []keepwatch.Change
	// Bytes is the size of the changes' objects.
	Bytes int
	// After is the greatest revision at which a batch may end that the changes join.
	// Changes below it begin a new batch, so that its From shows that they are repeated.
	After keepwatch.Revision
	// To is the revision that the stream has reached with the part.
	To keepwatch.Revision
	// Ends marks a bookmark that ends its batch: nothing joins behind it, and the batch
	// is delivered although nothing may have changed. It joins changes if they are below it: the
	// batch then shows it, see [keepwatch.Batch.Progress].
	Ends bool
	// Open is how long Next waits for further parts of the revision To, zero if no more can follow.
	Open time.Duration
}

// Limit bounds a batch. A single part may exceed it.
type Limit struct {
	Changes int
	Bytes   int // of objects
}

// pending is the batch that Next returns next.
type pending struct {
	keepwatch.Batch
	bytes int
	ready bool // has news; otherwise From == To and there are no changes
	ended bool // by a Part that Ends
}

// fits reports whether p joins the batch.
func (n *pending) fits(p Part, limit Limit) bool {
	switch {
	case !n.ready:
		return true
	case n.ended:
		return false
	case len(p.Changes) == 0:
		// Behind a change at its revision, a bookmark that joins could not be seen.
		return !p.Ends || keepwatch.Batch{Changes: n.Changes, To: max(n.To, p.To)}.Progress()
	}
	return p.After >= n.To && len(n.Changes)+len(p.Changes) <= limit.Changes && n.bytes+p.Bytes <= limit.Bytes
}

// add joins p to the batch. To never decreases.
func (n *pending) add(p Part) {
	n.Changes = append(n.Changes, p.Changes...)
	n.bytes += p.Bytes
	n.ready = n.ready || p.Ends || len(p.Changes) > 0 || p.To > n.To
	n.ended = p.Ends
	n.To = max(n.To, p.To)
}
