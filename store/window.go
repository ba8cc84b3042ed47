package store

import (
	"sort"
	"time"

	"github.com/keepwatch/keepwatch"
)

// moment is one delivery in the history.
type moment struct {
	delivery keepwatch.Delivery
	from, to keepwatch.Revision
	epoch    uint64 // after the delivery
	bytes    int64
	at       time.Time
}

// window is the recent history, oldest first: every delivery the store has made,
// each starting where the one before ended.
type window struct {
	queue[moment]
	bytes int64
}

// add appends a moment and trims what is beyond the bounds. The newest moment
// always stays, so that a consumer that keeps up never sees a gap.
func (w window) add(m moment, o Options) window {
	w.queue = w.push(m)
	w.bytes += m.bytes
	n := 0
	for n < len(w.items)-1 && (w.bytes > o.WindowBytes || m.at.Sub(w.items[n].at) > o.WindowAge) {
		w.bytes -= w.items[n].bytes
		n++
	}
	if n > 0 {
		w.queue = w.drop(n)
	}
	return w
}

// since finds the first moment that reaches beyond a revision of an epoch. It
// fails when that history is not in the window.
func (w window) since(epoch uint64, r keepwatch.Revision) (sequence uint64, ok bool) {
	i := sort.Search(len(w.items), func(i int) bool {
		m := w.items[i]
		return m.epoch > epoch || m.epoch == epoch && m.to > r
	})
	if i == len(w.items) {
		return 0, false
	}
	m := w.items[i]
	_, gap := m.delivery.(keepwatch.Gap)
	if m.epoch != epoch && !gap || m.from > r || gap && m.from != r {
		return 0, false
	}
	return w.dropped + uint64(i), true
}

// changes lists the changes of a delivery.
func changes(d keepwatch.Delivery) []keepwatch.Change {
	switch d := d.(type) {
	case keepwatch.Batch:
		return d.Changes
	case keepwatch.Gap:
		return d.Changes
	}
	return nil
}
