package store

import "github.com/keepwatch/keepwatch"

// At returns the state at a revision of the current epoch, as long as the window reaches
// back to it. It reverts the changes since then, at a cost proportional to their number,
// unless it returned the same state recently, and does not wait for the writer. It fails with a *keepwatch.Failure:
// Expired for a revision behind the window or within a gap, RevisionTooLarge for a revision that the store has not
// reached.
func (s *Store) At(revision keepwatch.Revision) (*Snapshot, error) {
	v := s.view.Load()
	now := v.snapshot
	switch {
	case revision == now.revision && revision > 0:
		return now, nil
	case revision > now.revision:
		return nil, keepwatch.Failed(keepwatch.RevisionTooLarge,
			"resource version %d is still to come after %d", revision, now.revision)
	}
	first, ok := v.window.since(Cursor{Epoch: now.epoch, Revision: revision})
	if !ok {
		return nil, keepwatch.Failed(keepwatch.Expired,
			"too old resource version: %d (%d)", revision, v.window.oldest(now.Cursor()))
	}
	if known := s.past.find(Cursor{Epoch: now.epoch, Revision: revision}); known != nil {
		return known, nil
	}
	past := newTxn(v, revision)
	for i := v.window.len() - 1; i >= first; i-- {
		past.undo(v.window.at(i))
	}
	then := past.snapshot()
	if len(now.indexes) > 0 {
		then.indexes = now.indexes.after(now.Diff(then))
	}
	s.past.add(s, then)
	return then, nil
}
