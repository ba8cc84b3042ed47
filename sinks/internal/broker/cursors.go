package broker

import (
	"fmt"

	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// Cursors has the cursors of all streams that a broker stores. C embeds a Cursor.
type Cursors[C interface{ Common() *Cursor }] map[StreamKey]C

// Common returns the cursor, of one that embeds it.
func (c *Cursor) Common() *Cursor { return c }

// EnterCluster is [sink.EnterCluster] of the cursors. It is called before one is entered.
func (all Cursors[C]) EnterCluster(streams []sink.Stream) error {
	var stored []*stream.Identity
	for _, c := range all {
		stored = append(stored, &c.Common().Identity)
	}
	if err := sink.EnterCluster(stored, streams); err != nil {
		return fmt.Errorf("%w; %s", err, useAnother)
	}
	return nil
}

// Committed has how far a process has brought each stream. What a broker has less of when it is opened again, it has
// lost: it was deleted, restored, or another member of it has fewer messages.
type Committed map[StreamKey]sink.Progress

// Lost returns a stream whose cursor is not as far as a process has brought it, and how far that was.
func (all Cursors[C]) Lost(committed Committed) (lost StreamKey, was sink.Progress, found bool) {
	for key, progress := range committed {
		c, ok := all[key]
		if progress != (sink.Progress{}) && (!ok || c.Common().Status().Progress.Before(progress)) {
			return key, progress, true
		}
	}
	return StreamKey{}, sink.Progress{}, false
}
