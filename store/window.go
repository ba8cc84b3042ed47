package store

import (
	"sort"
	"time"
	"unsafe"

	"github.com/keepwatch/keepwatch"
)

// moment is one delivery in the history. A batch stays in its epoch.
type moment struct {
	delivery keepwatch.Delivery
	from, to Cursor
	at       time.Duration // since the store was made
}

// The bytes of a moment and of a change, without the objects.
const (
	momentBytes = int64(unsafe.Sizeof(weighed[moment]{}) + unsafe.Sizeof(keepwatch.Batch{}))
	changeBytes = int64(unsafe.Sizeof(keepwatch.Change{}))
)

// weigh is what a moment counts for in the window.
func (m moment) weigh(o Options) int64 {
	bytes := momentBytes
	for _, c := range m.changes() {
		bytes += changeBytes + int64(o.Size(c.Object))
		if c.Prior != nil && c.Prior != c.Object {
			bytes += int64(o.Size(c.Prior))
		}
	}
	return bytes
}

func (m moment) changes() []keepwatch.Change {
	switch d := m.delivery.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}

func (m moment) gap() bool {
	_, gap := m.delivery.(keepwatch.Gap)
	return gap
}

// window is the recent history, oldest first: the deliveries that the store has
// made, each starting where the one before ended.
type window struct {
	queue[moment]
	gapped keepwatch.Revision // where the newest gap ended, 0 if there was none
}

// add appends a moment and trims what is beyond the bounds. The newest moment
// always stays, so that a consumer that keeps up never sees a gap; and so do the
// unheard ones before it, which not every watcher was woken for.
func (w window) add(m moment, unheard int, o Options) window {
	w.queue = w.push(m, m.weigh(o))
	if m.gap() {
		w.gapped = m.to.Revision
	}
	for w.len() > 1+unheard && (w.bytes > o.WindowBytes || m.at-w.at(0).at > o.WindowAge) {
		w.queue = w.drop()
	}
	return w
}

// oldest is the revision since which every change of the epoch is here.
func (w window) oldest(now Cursor) keepwatch.Revision {
	switch {
	case w.len() == 0:
		return now.Revision
	case w.at(0).from.Epoch == now.Epoch:
		return max(w.gapped, w.at(0).from.Revision)
	}
	return w.gapped // that began the epoch
}

// since finds the first moment that goes on from a cursor. It fails when that
// history is not in the window, or when the cursor lies within a gap.
func (w window) since(c Cursor) (i int, ok bool) {
	i = sort.Search(w.len(), func(i int) bool { return c.before(w.at(i).to) })
	if i == w.len() {
		return 0, false
	}
	m := w.at(i)
	if m.gap() {
		return i, m.from == c
	}
	return i, m.from.Epoch == c.Epoch && m.from.Revision <= c.Revision
}
