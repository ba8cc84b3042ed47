package store

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// replacement is a list on its way into the store. Readers see nothing of it
// before the commit. Beyond the objects that differ it costs one bit for each
// object held.
type replacement struct {
	*edition
	store  *Store
	reason keepwatch.GapReason
	// seen has a bit for each object of the base, by rank.
	seen []uint64
}

// Replace begins to replace the state by a list; see keepwatch.Target. There is
// one replacement at a time, and no Apply until it is committed or discarded.
func (s *Store) Replace(_ context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	base := s.Snapshot()
	r := &replacement{
		edition: newEdition(base, relist.To), store: s, reason: relist.Reason,
		seen: make([]uint64, (base.Len()+63)/64),
	}
	if relist.Reason == keepwatch.GapRewind {
		r.epoch++
	}
	return r, nil
}

// Put takes the next objects of the list.
func (r *replacement) Put(_ context.Context, objects []keepwatch.Object) error {
	for _, o := range objects {
		if err := r.take(o); err != nil {
			return err
		}
	}
	return nil
}

func (r *replacement) take(o keepwatch.Object) error {
	key := o.Key()
	if _, rank, ok := r.base.tree.get(key); ok {
		r.seen[rank/64] |= 1 << (rank % 64)
	}
	held, known := r.get(key)
	switch {
	case !known || held.object.UID() != o.UID():
	case r.unchanged(held.object, o):
		return nil
	case o.Revision() < held.object.Revision() && r.epoch == r.base.epoch:
		return keepwatch.Failed(keepwatch.ProtocolViolation,
			"the list shows %s at %d, but it was at %d already", key, o.Revision(), held.object.Revision())
	}
	r.set(held, known, o, max(o.Revision(), r.revision))
	return nil
}

// unchanged reports whether o is what is held. Within an epoch the revision
// tells; after a rewind the same number can be another write.
func (r *replacement) unchanged(held, o keepwatch.Object) bool {
	if held.Revision() != o.Revision() {
		return false
	}
	if r.epoch == r.base.epoch {
		return true
	}
	e, ok := o.(Equaler)
	return ok && e.Equal(held)
}

// Commit publishes the list as one gap.
func (r *replacement) Commit(_ context.Context, to keepwatch.Revision) error {
	r.store.writing.Lock()
	defer r.store.writing.Unlock()
	r.revision = to
	rank := 0
	r.base.tree.from(keepwatch.Key{}, func(e entry) bool {
		if r.seen[rank/64]&(1<<(rank%64)) == 0 {
			r.delete(e, to, e.object)
		}
		rank++
		return true
	})
	r.store.publish(r.edition, keepwatch.Gap{
		From: r.base.revision, To: to, Reason: r.reason, Changes: r.changes,
	})
	return nil
}

// Discard forgets the list.
func (r *replacement) Discard() {}
