package store

import (
	"sort"
	"time"
	"unsafe"

	"github.com/keepwatch/keepwatch"
)

// logEntry is one delivery in the window. A batch lies within one epoch.
type logEntry struct {
	delivery keepwatch.Delivery
	from, to Cursor
	at       time.Duration // since the store was made
}

// The bytes of a log entry and of a change, without the objects.
const (
	logEntryBytes = int64(unsafe.Sizeof(sized[logEntry]{}) + unsafe.Sizeof(keepwatch.Batch{}))
	changeBytes   = int64(unsafe.Sizeof(keepwatch.Change{}))
)

// size returns the bytes that count against WindowBytes.
func (e logEntry) size(o Options) int64 {
	bytes := logEntryBytes
	for _, c := range e.changes() {
		bytes += changeBytes + int64(o.Size(c.Object))
		if c.Prior != nil && c.Prior != c.Object {
			bytes += int64(o.Size(c.Prior))
		}
	}
	return bytes
}

func (e logEntry) changes() []keepwatch.Change {
	switch d := e.delivery.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}

func (e logEntry) isGap() bool {
	_, gap := e.delivery.(keepwatch.Gap)
	return gap
}

func (e logEntry) isProgress() bool {
	batch, ok := e.delivery.(keepwatch.Batch)
	return ok && batch.Progress()
}

// window holds the recent deliveries, oldest first. Each starts where the one before it
// ended.
type window struct {
	queue[logEntry]
	gapped keepwatch.Revision // the end of the newest gap, 0 if there was none
}

// add appends an entry and drops the oldest ones beyond the bounds. The newest entry
// always stays, so that a consumer that keeps up never sees a gap. So do the pending
// entries before it, for which not every watcher was woken yet.
func (w window) add(e logEntry, pending int, o Options) window {
	w.queue = w.push(e, e.size(o))
	if e.isGap() {
		w.gapped = e.to.Revision
	}
	for w.len() > 1+pending && (w.bytes > o.WindowBytes || e.at-w.at(0).at > o.WindowAge) {
		w.queue = w.drop()
	}
	return w
}

// oldest returns the revision since which the window has every change of the epoch.
func (w window) oldest(now Cursor) keepwatch.Revision {
	switch {
	case w.len() == 0:
		return now.Revision
	case w.at(0).from.Epoch == now.Epoch:
		return max(w.gapped, w.at(0).from.Revision)
	}
	return w.gapped // a gap began the epoch
}

// since finds the first entry after a cursor. It reports false if the window does not
// reach back to the cursor, or if the cursor lies within a gap.
func (w window) since(c Cursor) (i int, ok bool) {
	i = sort.Search(w.len(), func(i int) bool { return c.before(w.at(i).to) })
	if i == w.len() {
		return 0, false
	}
	e := w.at(i)
	if e.isGap() {
		return i, e.from == c
	}
	return i, e.from.Epoch == c.Epoch && e.from.Revision <= c.Revision
}
