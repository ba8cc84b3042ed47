package broker

import "github.com/keepwatch/keepwatch/stream/sink"

// Committed has how far a process has brought each stream. What a broker has less of when it is opened again, it has
// lost: it was deleted, restored, or another member of it has fewer messages.
type Committed map[StreamKey]sink.Progress

// Lost returns a stream whose cursor is not as far as this process has brought it, and how far that was.
func (c Committed) Lost(cursor func(StreamKey) *Cursor) (lost StreamKey, was sink.Progress, found bool) {
	for key, progress := range c {
		if at := cursor(key); progress != (sink.Progress{}) && (at == nil || at.Status().Progress.Before(progress)) {
			return key, progress, true
		}
	}
	return StreamKey{}, sink.Progress{}, false
}
