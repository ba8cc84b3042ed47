package sink

import (
	"cmp"
	"slices"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/stream"
)

// Progress is how far one stream has come. It is a pure fold of the stream's pieces.
type Progress struct {
	// Cursor is the revision up to which all events are stored, 0 until the first list is
	// complete.
	Cursor keepwatch.Revision `json:"cursor"`
	// Since is the revision from which on the history is complete: that of the last list.
	Since keepwatch.Revision `json:"since"`
	// Epoch counts the rewinds of the source.
	Epoch int `json:"epoch"`
	// Gap is the reason of the gap that is open, empty if there is none.
	Gap keepwatch.GapReason `json:"gap,omitempty"`
	// Floor is the least epoch after the next rewind: that of the stream's line. It is not
	// stored.
	Floor int `json:"-"`
}

// After returns the progress after a piece.
func (p Progress) After(piece stream.Piece) Progress {
	for _, m := range piece.Messages {
		p = p.Message(m)
	}
	p.Cursor = piece.Cursor
	return p
}

// Message returns the progress after a message. A gap that is declared again, because its list
// was started over, is no other rewind.
func (p Progress) Message(m stream.Message) Progress {
	switch m := m.(type) {
	case stream.Gap:
		if p.Gap == keepwatch.GapRewind {
			return p
		}
		if m.Reason == keepwatch.GapRewind {
			p.Epoch = max(p.Epoch+1, p.Floor)
		}
		p.Gap = m.Reason
	case stream.Synced:
		if p.Gap != "" || p.Since == 0 {
			p.Since, p.Gap = m.Revision, ""
		}
	}
	return p
}

// Before reports whether a stream makes the progress p before it makes the progress other. Within an epoch the gap of
// the rewind is first: until it ends, the cursor is that of the epoch before, which may be a greater revision.
func (p Progress) Before(other Progress) bool {
	switch rewinding, otherRewinding := p.Gap == keepwatch.GapRewind, other.Gap == keepwatch.GapRewind; {
	case p.Epoch != other.Epoch:
		return p.Epoch < other.Epoch
	case rewinding != otherRewinding:
		return rewinding
	}
	return p.Cursor < other.Cursor
}

// Started reports whether the first list was complete.
func (p Progress) Started() bool { return p.Since > 0 }

// Cut is a revision at which all streams of a line are complete.
type Cut struct {
	Epoch    int
	Revision keepwatch.Revision
}

// CutOf returns the newest revision at which all streams of a line are complete. It returns
// false while a first list or a gap is not complete, while a stream has not reached the
// revision at which the history of another begins, and while the streams are in different
// epochs.
func CutOf(line []Progress) (Cut, bool) {
	if len(line) == 0 {
		return Cut{}, false
	}
	last := slices.MinFunc(line, func(a, b Progress) int { return cmp.Compare(a.Cursor, b.Cursor) })
	for _, p := range line {
		if !p.Started() || p.Gap != "" || p.Since > last.Cursor || p.Epoch != last.Epoch {
			return Cut{}, false
		}
	}
	return Cut{Epoch: last.Epoch, Revision: last.Cursor}, true
}
