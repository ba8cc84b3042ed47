package store

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/keepwatch/keepwatch"
)

// tombstone records a deletion: a delete is data.
type tombstone struct {
	object   keepwatch.Object   // the last state, in full or as returned by Slim
	created  keepwatch.Revision // the entry's
	revision keepwatch.Revision // of the deletion, or of the list that lacked the object
}

const tombstoneBytes = int64(unsafe.Sizeof(sized[tombstone]{}))

// span is a range of revisions that only a gap covers. Objects that were created and
// deleted within it are not known.
type span struct{ from, to keepwatch.Revision }

// maxSpans bounds the spans of a graveyard.
const maxSpans = 256

// graveyard holds the tombstones of an epoch in the order of their revisions: the newer
// ones with objects in full, the older ones with slim objects. It is immutable once it is
// part of a view.
type graveyard struct {
	full, slim queue[tombstone]
	// horizon is the oldest revision since which every deletion has a tombstone.
	horizon keepwatch.Revision
	// spans lie after horizon, oldest first.
	spans []span
}

// after returns the graveyard of a transaction's next state.
func (g *graveyard) after(t *txn, d keepwatch.Delivery, o Options) *graveyard {
	if t.base.revision == 0 || t.epoch != t.base.epoch {
		return &graveyard{horizon: t.revision}
	}
	_, gap := d.(keepwatch.Gap)
	if len(t.tombstones) == 0 && !gap {
		return g
	}
	next := *g
	for _, old := range t.tombstones {
		next.add(old, o)
	}
	if gap {
		next.addSpan(span{t.base.revision, t.revision})
	}
	return &next
}

// add appends a tombstone. Beyond the bounds it drops the oldest ones and raises the horizon.
func (g *graveyard) add(t tombstone, o Options) {
	g.full = g.full.push(t, tombstoneBytes+int64(o.Size(t.object)))
	for g.full.bytes > o.TombstoneBytes && g.full.len() > 0 {
		if o.Slim == nil {
			g.dropOldest()
			continue
		}
		oldest := g.full.at(0)
		g.full = g.full.drop()
		oldest.object = o.Slim(oldest.object)
		g.slim = g.slim.push(oldest, tombstoneBytes+int64(o.Size(oldest.object)))
	}
	for g.full.len()+g.slim.len() > o.Tombstones || g.slim.bytes > o.SlimBytes {
		g.dropOldest()
	}
}

// dropOldest drops the oldest tombstone.
func (g *graveyard) dropOldest() {
	if g.slim.len() > 0 {
		g.horizon = g.slim.at(0).revision
		g.slim = g.slim.drop()
	} else {
		g.horizon = g.full.at(0).revision
		g.full = g.full.drop()
	}
}

// addSpan records a span whose history is not known.
func (g *graveyard) addSpan(s span) {
	g.spans = append(slices.Clone(g.spans), s)
	if len(g.spans) > maxSpans {
		g.horizon = max(g.horizon, g.spans[0].to)
	}
	for len(g.spans) > 0 && g.spans[0].to <= g.horizon {
		g.spans = g.spans[1:]
	}
}

// coversSince reports whether every deletion since a revision has a tombstone. That is not
// so for a revision behind the horizon, nor within a span: an object may have been created
// before it and deleted after it.
func (g *graveyard) coversSince(r keepwatch.Revision) bool {
	i := sort.Search(len(g.spans), func(i int) bool { return g.spans[i].to > r })
	return r >= g.horizon && (i == len(g.spans) || r <= g.spans[i].from)
}

// revealed reports whether an object left at a revision that is not known exactly, because that revision is within a
// span.
func (g *graveyard) revealed(left keepwatch.Revision) bool {
	i := sort.Search(len(g.spans), func(i int) bool { return g.spans[i].to >= left })
	return i < len(g.spans) && g.spans[i].from < left
}

// since calls yield for the deletions after a revision, oldest first.
func (g *graveyard) since(r keepwatch.Revision, yield func(tombstone)) {
	for _, q := range [...]queue[tombstone]{g.slim, g.full} {
		for i := sort.Search(q.len(), func(i int) bool { return q.at(i).revision > r }); i < q.len(); i++ {
			yield(q.at(i))
		}
	}
}
