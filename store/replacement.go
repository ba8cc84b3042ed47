package store

import (
	"context"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// Equaler is implemented by objects that can compare their content. A list may show an object of
// an equal revision with another content: its definition has changed (a default was added, a field
// pruned, a conversion switched), the server was upgraded, or it was restored from a backup. Only
// Equal tells (kubernetes #71138, #74105, #123074).
type Equaler interface {
	Equal(keepwatch.Object) bool
}

// Summed is implemented by objects that have a hash of their content which is the same in every
// process. A [Record] has the hash in place of the content. 0 means that it is not known.
type Summed interface{ Sum() uint64 }

// replacement receives a list. Readers see nothing of it before the commit. It stores only
// the objects that differ from the current state, and one bit for each current object.
type replacement struct {
	*txn   // nil once the replacement has ended
	store  *Store
	relist keepwatch.Relist
	newest keepwatch.Revision // of the objects that were put
	// seen has a bit for each object of the base, by rank.
	seen []uint64
}

// Replace begins to replace the state by a list; see keepwatch.Target. The caller must
// commit or discard a replacement before it calls Replace or Apply again.
func (s *Store) Replace(_ context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	s.writing.Lock()
	v := s.beginning(relist)
	s.writing.Unlock()
	base := v.snapshot
	r := &replacement{
		txn: newTxn(v, relist.To), store: s, relist: relist,
		seen: make([]uint64, (base.Len()+63)/64),
	}
	if v.invalid != "" && relist.Reason != keepwatch.GapRewind {
		r.relist.Reason = v.invalid
	}
	switch {
	case base.revision == 0:
	case relist.To == 0 && v.invalid == "":
		return nil, keepwatch.Failed(keepwatch.InvariantViolation, "a relist must know its revision")
	case relist.To == 0:
		return nil, keepwatch.Failed(keepwatch.StreamingListUnsupported,
			"the difference from revision %d on is taken from a paged list", base.revision)
	case r.relist.Reason == keepwatch.GapRewind:
		r.epoch++
	case relist.To < base.revision:
		return nil, keepwatch.Failed(keepwatch.StaleReplica,
			"the list is of revision %d, but the state is at %d already", relist.To, base.revision)
	}
	return r, nil
}

// rewound reports whether the list belongs to another history than the base.
func (r *replacement) rewound() bool { return r.epoch != r.base.epoch }

// Put adds the next objects of the list.
func (r *replacement) Put(_ context.Context, objects []keepwatch.Object) error {
	if r.txn == nil {
		return errEnded()
	}
	for _, o := range objects {
		if err := r.put(o); err != nil {
			return err
		}
	}
	return nil
}

func errEnded() error {
	return keepwatch.Failed(keepwatch.InvariantViolation, "the list has ended already")
}

func (r *replacement) put(o keepwatch.Object) error {
	if err := validateKey(o); err != nil {
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
	case sameState(p.object, o):
		if r.unchanged(p, o) {
			return nil
		}
	case o.Revision() <= p.object.Revision() && !r.rewound():
		return r.olderError(o, p.object)
	}
	r.putObject(p, r.base.tree.get(key), o, max(o.Revision(), r.relist.To))
	return nil
}

// olderError returns the failure for an object that is older than the store's, or that has
// another UID at the same revision: the source went back in time, even if the revision of
// the list is above the store's; or the list contains the object twice.
func (r *replacement) olderError(o, newer keepwatch.Object) error {
	kind := keepwatch.ProtocolViolation
	if current, ok := r.base.Get(o.Key()); ok && current == newer {
		kind = keepwatch.Rewound
		if _, only := newer.(recorded); only {
			r.store.forget() // the next list is the first one
		}
	}
	return keepwatch.Failed(kind, "the list shows %s, UID %s, at %d, but UID %s was there at %d already",
		o.Key(), o.UID(), o.Revision(), newer.UID(), newer.Revision())
}

// sameState reports whether two objects are the same write of the same object, as far as the
// source's numbers tell.
func sameState(a, b keepwatch.Object) bool {
	return a.UID() == b.UID() && a.Revision() == b.Revision()
}

// unchanged reports whether an object of the list has the content of the current one, of the same
// state. It stores the content if only a record was there. Objects that cannot be compared are
// equal, except after a rewind: then the same revision can be another write.
func (r *replacement) unchanged(p position, o keepwatch.Object) bool {
	if record, only := p.object.(recorded); only {
		if record.describes(o) {
			r.adopt(p, o)
			return true
		}
		return false
	}
	if e, ok := o.(Equaler); ok {
		return e.Equal(p.object)
	}
	return !r.rewound()
}

// Commit publishes the list, and the difference to the state before it as one gap.
func (r *replacement) Commit(_ context.Context, to keepwatch.Revision) error {
	if r.txn == nil {
		return errEnded()
	}
	if to == 0 || r.relist.To != 0 && to != r.relist.To || r.newest > to {
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"a list begun at revision %d, with objects up to %d, can't be the state at %d", r.relist.To, r.newest, to)
	}
	t := r.txn
	r.txn = nil
	t.revision = to
	r.sweep(t)
	gap := keepwatch.Gap{From: t.base.revision, To: to, Reason: r.relist.Reason}
	if t.base.revision == 0 {
		return r.store.replace(t, gap)
	}
	t.diffBase()
	if to == t.base.revision && t.epoch == t.base.epoch {
		if first := r.store.view.Load().snapshot.revision == 0; len(t.changes) == 0 && !first {
			r.store.confirm()
			return nil
		}
	}
	if t.epoch == t.base.epoch && t.contradictsBase() {
		t.epoch++
	}
	if to < t.base.revision {
		t.capRevisions()
	}
	gap.Changes = slices.Clip(t.changes)
	return r.store.replace(t, gap)
}

// Discard drops the list.
func (r *replacement) Discard() { r.txn = nil }

// sweep deletes the objects that the list lacks.
func (r *replacement) sweep(t *txn) {
	rank := 0
	t.base.tree.all(func(s Segment) bool {
		for _, current := range s.entries() {
			if r.seen[rank/64]&(1<<(rank%64)) == 0 {
				t.removeObject(t.seek(current.object.Key()))
			}
			rank++
		}
		return true
	})
}
