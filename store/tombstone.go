package store

import (
	"sort"

	"github.com/keepwatch/keepwatch"
)

// tombstone is a deletion that is remembered: a delete is data.
type tombstone struct {
	key      keepwatch.Key
	object   keepwatch.Object // the last state, in full or what Slim left of it
	created  keepwatch.Revision
	revision keepwatch.Revision // of the deletion; an upper bound after a gap
}

// graveyard holds the tombstones, in the order of their revisions: the newer
// ones with their objects in full, the older ones slim.
type graveyard struct {
	full, slim queue[tombstone]
	bytes      int64 // of the objects in full
	// horizon is the oldest revision since which every deletion is here.
	horizon keepwatch.Revision
}

// bury adds a tombstone and keeps the bounds, moving the horizon where it must.
func (g graveyard) bury(t tombstone, o Options) graveyard {
	g.full = g.full.push(t)
	g.bytes += int64(o.Size(t.object))
	for g.bytes > o.TombstoneBytes && len(g.full.items) > 0 {
		oldest := g.full.items[0]
		g.full = g.full.drop(1)
		g.bytes -= int64(o.Size(oldest.object))
		if o.Slim == nil {
			g.horizon = oldest.revision
			continue
		}
		oldest.object = o.Slim(oldest.object)
		g.slim = g.slim.push(oldest)
	}
	for len(g.full.items)+len(g.slim.items) > o.Tombstones {
		g = g.forget(o)
	}
	return g
}

// forget drops the oldest tombstone.
func (g graveyard) forget(o Options) graveyard {
	if len(g.slim.items) > 0 {
		g.horizon = g.slim.items[0].revision
		g.slim = g.slim.drop(1)
		return g
	}
	g.horizon = g.full.items[0].revision
	g.bytes -= int64(o.Size(g.full.items[0].object))
	g.full = g.full.drop(1)
	return g
}

// since calls yield for the deletions after a revision, oldest first.
func (g graveyard) since(r keepwatch.Revision, yield func(tombstone)) {
	for _, q := range [...][]tombstone{g.slim.items, g.full.items} {
		for _, t := range q[sort.Search(len(q), func(i int) bool { return q[i].revision > r }):] {
			yield(t)
		}
	}
}
