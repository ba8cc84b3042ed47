package store

import (
	"slices"
	"sort"
	"unsafe"

	"github.com/keepwatch/keepwatch"
)

// tombstone is a deletion that is remembered: a delete is data.
type tombstone struct {
	object   keepwatch.Object   // the last state, in full or what Slim left of it
	created  keepwatch.Revision // the entry's
	revision keepwatch.Revision // of the deletion, or of the list that showed it
}

const tombstoneBytes = int64(unsafe.Sizeof(weighed[tombstone]{}))

// span is a piece of history that only a gap tells of: what came and went in it
// is not known.
type span struct{ from, to keepwatch.Revision }

// spansKept bounds the spans that a graveyard remembers.
const spansKept = 256

// graveyard holds the tombstones of an epoch, in the order of their revisions:
// the newer ones with their objects in full, the older ones slim. It never changes
// once it is part of a view.
type graveyard struct {
	full, slim queue[tombstone]
	// horizon is the oldest revision since which every deletion is here.
	horizon keepwatch.Revision
	// spans lie between horizon and now, oldest first.
	spans []span
}

// after is the graveyard after an edition of the state.
func (g *graveyard) after(e *edition, d keepwatch.Delivery, o Options) *graveyard {
	if e.base.revision == 0 || e.epoch != e.base.epoch {
		return &graveyard{horizon: e.revision}
	}
	_, gap := d.(keepwatch.Gap)
	if len(e.dead) == 0 && !gap {
		return g
	}
	next := *g
	for _, t := range e.dead {
		next.bury(t, o)
	}
	if gap {
		next.skip(span{e.base.revision, e.revision})
	}
	return &next
}

// bury adds a tombstone and keeps the bounds, moving the horizon where it must.
func (g *graveyard) bury(t tombstone, o Options) {
	g.full = g.full.push(t, tombstoneBytes+int64(o.Size(t.object)))
	for g.full.bytes > o.TombstoneBytes && g.full.len() > 0 {
		if o.Slim == nil {
			g.forget()
			continue
		}
		oldest := g.full.at(0)
		g.full = g.full.drop()
		oldest.object = o.Slim(oldest.object)
		g.slim = g.slim.push(oldest, tombstoneBytes+int64(o.Size(oldest.object)))
	}
	for g.full.len()+g.slim.len() > o.Tombstones || g.slim.bytes > o.SlimBytes {
		g.forget()
	}
}

// forget drops the oldest tombstone.
func (g *graveyard) forget() {
	if g.slim.len() > 0 {
		g.horizon = g.slim.at(0).revision
		g.slim = g.slim.drop()
	} else {
		g.horizon = g.full.at(0).revision
		g.full = g.full.drop()
	}
}

// skip remembers that the history of a span is not known.
func (g *graveyard) skip(s span) {
	g.spans = append(slices.Clone(g.spans), s)
	if len(g.spans) > spansKept {
		g.horizon = max(g.horizon, g.spans[0].to)
	}
	for len(g.spans) > 0 && g.spans[0].to <= g.horizon {
		g.spans = g.spans[1:]
	}
}

// knows reports whether every deletion since a revision is here: not of one
// behind the horizon, nor of one within a span, where an object may have come
// before it and gone after it.
func (g *graveyard) knows(r keepwatch.Revision) bool {
	i := sort.Search(len(g.spans), func(i int) bool { return g.spans[i].to > r })
	return r >= g.horizon && (i == len(g.spans) || r <= g.spans[i].from)
}

// since calls yield for the deletions after a revision, oldest first.
func (g *graveyard) since(r keepwatch.Revision, yield func(tombstone)) {
	for _, q := range [...]queue[tombstone]{g.slim, g.full} {
		for i := sort.Search(q.len(), func(i int) bool { return q.at(i).revision > r }); i < q.len(); i++ {
			yield(q.at(i))
		}
	}
}
