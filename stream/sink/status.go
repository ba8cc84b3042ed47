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

// Thinning thins out old history: of the states that ended longer than Age ago, those are deleted that no border has,
// which is a time that is a multiple of Interval in UTC. The range of what was deleted becomes a gap of the reason
// [GapThinned]. The last state of a deleted object stays. The zero value deletes nothing.
type Thinning struct{ Age, Interval time.Duration }

// Expiry are states that a sink has deleted by its options, those first that ended first. States that have not ended
// are never deleted.
type Expiry struct {
	Reason ExpiryReason
	States int
	Until  time.Time // the newest end of them
	// Excess is by how many bytes the current states alone are more than the size that the sink may have.
	Excess int64
}

// ExpiryReason is why states were deleted.
type ExpiryReason string

// The reasons of expiries.
const (
	ExpiredByAge      ExpiryReason = "age"
	ExpiredBySize     ExpiryReason = "size"
	ExpiredByThinning ExpiryReason = "thinning"
)

// Status is what a sink has stored of one stream.
type Status struct {
	ID       stream.Identity
	Line     int
	Active   bool // the last process that opened the sink follows it
	Progress Progress
	// First is the point from which on every state is stored, except in gaps: that of the first list, or, if states
	// were deleted by age or size, a later one. Zero: no list is complete, or it is not
	// known.
	First Point
	// FirstSeen is when the state at First was complete.
	FirstSeen time.Time
	Count     uint64 // objects
	// Time is that of the last batch with a piece of the stream.
	Time time.Time
}
