package store

import "github.com/keepwatch/keepwatch"

// At is the state at a revision of the current epoch, exactly, as long as the
// window reaches back to it: a snapshot of then, made by taking back what has
// changed since, which is what it costs. It fails with a *keepwatch.Failure:
// Expired for a revision behind the window or within a gap, RevisionTooLarge for
// one that is still to come. It does not block.
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
	past := newEdition(now, revision)
	for i := v.window.len() - 1; i >= first; i-- {
		past.undo(v.window.at(i))
	}
	then := past.snapshot()
	if len(now.indexes) > 0 {
		then.indexes = now.indexes.after(now.Diff(then))
	}
	return then, nil
}

// undo takes back what came after the edition's revision.
func (e *edition) undo(m moment) {
	changes := m.changes()
	for i := len(changes) - 1; i >= 0; i-- {
		c := changes[i]
		if !m.gap() && c.Revision <= e.revision {
			return
		}
		if p := e.seek(c.Object.Key()); c.Prior == nil {
			e.unset(p)
		} else {
			e.set(p, nil, c.Prior, c.Prior.Revision())
		}
	}
}
