package sink

import (
	"context"
	"time"

	"github.com/keepwatch/keepwatch/stream"
)

// Reader is a sink that shows what it has stored, also while another process writes to it.
type Reader interface {
	// Status returns the status of every stream that was ever stored, by resource and
	// namespace. It changes nothing.
	Status(ctx context.Context) ([]Status, error)
}

// Status is what a sink has stored of one stream.
type Status struct {
	ID       stream.Identity
	Line     int
	Active   bool // the last process that opened the sink follows it
	Progress Progress
	// First is the point from which on every state is stored, except in gaps: that of the first list, or, if states
	// were deleted that had ended longer ago than the retention, a later one. Zero: no list is complete, or it is not
	// known.
	First Point
	// FirstSeen is when the state at First was complete.
	FirstSeen time.Time
	Count     uint64 // objects
	// Time is that of the last batch with a piece of the stream.
	Time time.Time
}
