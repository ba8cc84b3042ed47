package store

import (
	"context"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// Equaler is implemented by objects that can compare their content. It is asked
// only after a rewind, when equal revisions no longer mean equal content.
type Equaler interface {
	Equal(keepwatch.Object) bool
}

// replacement is a list on its way into the store. Readers see nothing of it
// before the commit. Beyond the objects that differ it costs one bit for each
// object held.
type replacement struct {
	*edition // nil when the replacement has ended
	store    *Store
	relist   keepwatch.Relist
	newest   keepwatch.Revision // of the objects that were put
	// seen has a bit for each object of the base, by rank.
	seen []uint64
}

// Replace begins to replace the state by a list; see keepwatch.Target. There is
// one replacement at a time, and no Apply until it is committed or discarded.
func (s *Store) Replace(_ context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	v := s.view.Load()
	base := v.snapshot
	e := newEdition(base, relist.To)
	r := &replacement{
		edition: &e, store: s, relist: relist,
		seen: make([]uint64, (base.Len()+63)/64),
	}
	if v.void != "" && relist.Reason != keepwatch.GapRewind {
		r.relist.Reason = v.void
	}
	switch {
	case base.revision == 0:
	case relist.To == 0 && v.void == "":
		return nil, keepwatch.Failed(keepwatch.Broken, "a relist must know its revision")
	case relist.To == 0:
		return nil, keepwatch.Failed(keepwatch.StreamingListUnsupported,
			"the difference from revision %d on is taken from a paged list", base.revision)
	case r.relist.Reason == keepwatch.GapRewind:
		r.epoch++
	case relist.To < base.revision:
		kind := keepwatch.StaleReplica
		if v.void != "" {
			kind = keepwatch.Rewound // it is not a replica's: nobody asked for a state as new as what is held
		}
		return nil, keepwatch.Failed(kind,
			"the list shows revision %d, but %d is held already", relist.To, base.revision)
	}
	return r, nil
}

// rewound reports whether the list belongs to another history than what is held.
func (r *replacement) rewound() bool { return r.epoch != r.base.epoch }

// Put takes the next objects of the list.
func (r *replacement) Put(_ context.Context, objects []keepwatch.Object) error {
	if r.edition == nil {
		return ended()
	}
	for _, o := range objects {
		if err := r.take(o); err != nil {
			return err
		}
	}
	return nil
}

func ended() error { return keepwatch.Failed(keepwatch.Broken, "the list has ended already") }

func (r *replacement) take(o keepwatch.Object) error {
	if err := named(o); err != nil {
		return err
	}
	key := o.Key()
	if rank, ok := r.base.tree.rank(key); ok {
		r.seen[rank/64] |= 1 << (rank % 64)
	}
	r.newest = max(r.newest, o.Revision())
	p := r.seek(key)
	switch {
	case p.entry == nil:
	case r.unchanged(p.object, o):
		return nil
	case o.Revision() <= p.object.Revision() && !r.rewound():
		return r.older(o, p.object)
	}
	r.set(p, r.base.tree.get(key), o, max(o.Revision(), r.relist.To))
	return nil
}

// older is what it means that a list shows o in the place of a newer state, or of
// another life at the same revision: that the source went back, also where the
// list's own revision is above ours again; or that the list contradicts itself.
func (r *replacement) older(o, newer keepwatch.Object) error {
	kind := keepwatch.ProtocolViolation
	if held, ok := r.base.Get(o.Key()); ok && held == newer {
		kind = keepwatch.Rewound
	}
	return keepwatch.Failed(kind, "the list shows %s, UID %s, at %d, but UID %s was there at %d already",
		o.Key(), o.UID(), o.Revision(), newer.UID(), newer.Revision())
}

// unchanged reports whether o is what is held. Within an epoch the revision
// tells; after a rewind the same number can be another write.
func (r *replacement) unchanged(held, o keepwatch.Object) bool {
	if held.UID() != o.UID() || held.Revision() != o.Revision() {
		return false
	}
	if !r.rewound() {
		return true
	}
	e, ok := o.(Equaler)
	return ok && e.Equal(held)
}

// Commit publishes the list, and what it changes as one gap.
func (r *replacement) Commit(_ context.Context, to keepwatch.Revision) error {
	if r.edition == nil {
		return ended()
	}
	if to == 0 || r.relist.To != 0 && to != r.relist.To || r.newest > to {
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"a list begun at revision %d, with objects up to %d, can't be the state at %d", r.relist.To, r.newest, to)
	}
	e := r.edition
	r.edition = nil
	e.revision = to
	r.sweep(e)
	gap := keepwatch.Gap{From: e.base.revision, To: to, Reason: r.relist.Reason}
	if e.base.revision == 0 {
		return r.store.replace(e, gap)
	}
	e.compare()
	if to == e.base.revision && e.epoch == e.base.epoch {
		if len(e.changes) == 0 {
			r.store.confirm()
			return nil
		}
		e.epoch++ // this revision was shown in another state
	}
	if to < e.base.revision {
		e.restamp()
	}
	gap.Changes = slices.Clip(e.changes)
	return r.store.replace(e, gap)
}

// Discard gives the list up.
func (r *replacement) Discard() { r.edition = nil }

// sweep deletes what was not put.
func (r *replacement) sweep(e *edition) {
	rank := 0
	e.base.tree.all(func(s Segment) bool {
		for _, held := range s.entries() {
			if r.seen[rank/64]&(1<<(rank%64)) == 0 {
				e.unset(e.seek(held.object.Key()))
			}
			rank++
		}
		return true
	})
}
