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
	Count    uint64 // objects
	// Time is that of the last batch with a piece of the stream.
	Time time.Time
}
