package store

import "github.com/keepwatch/keepwatch"

// selection is the difference between the state at a revision and the newest one, as a
// filter by content sees it. It is exact: what matched then is told by the states that
// were replaced since.
type selection struct {
	filter     Filter
	passages   map[keepwatch.Key]*passage
	order      []*passage // by their first changes
	unreadable *Unreadable
}

// passage is how an object has gone through the filter since the revision.
type passage struct {
	// last is its last state in the view before it left that for the first time; nil if
	// it was not in the view at the revision.
	last keepwatch.Object
	// left is when it did, 0 if it has not. That is when the view shows it as deleted: a
	// consumer that stops at a later revision, and goes on from there, must have been told.
	left    keepwatch.Revision
	changed keepwatch.Revision // of the newest change so far
	stays   bool               // it is in the view now, and the same object as then
}

// selected is the difference since a revision of which the log knows.
func (v *view) selected(r keepwatch.Revision, f Filter) ([]keepwatch.Change, *Unreadable) {
	s := selection{filter: f, passages: map[keepwatch.Key]*passage{}}
	v.attributes.since(r, s.replaced)

	for i := range v.window.len() {
		s.moment(v.window.at(i), v.snapshot.epoch)
	}
	var remain []keepwatch.Change
	v.snapshot.tree.root.newer(r, f.Namespace, func(e *entry) {
		if c, ok := s.now(e, r); ok {
			remain = append(remain, c)
		}
	})
	if s.unreadable != nil {
		return nil, s.unreadable
	}
	gone := s.gone()
	v.graveyard.since(r, s.buried)
	changes := make([]keepwatch.Change, 0, len(gone)+len(remain))
	for _, p := range gone {
		changes = append(changes, removed(p.last, p.last, p.left))
	}
	return append(changes, remain...), nil
}

// moment takes a moment of the window.
func (s *selection) moment(m moment, epoch uint64) {
	if m.from.Epoch != epoch {
		return
	}
	for _, c := range m.changes() {
		r := replaced{c.Object.Key(), c.Prior, c.Revision}
		if m.gap() {
			r.revision = m.to.Revision
		}
		s.replaced(r)
	}
}

// replaced takes the next change.
func (s *selection) replaced(r replaced) {
	if s.unreadable != nil || !s.filter.covers(r.key) {
		return
	}
	p := s.passages[r.key]
	switch first := p == nil; {
	case first:
		p = &passage{}
		s.passages[r.key] = p
		s.order = append(s.order, p)
		if r.prior != nil && s.matches(r.prior) {
			p.last = r.prior
		}
	case p.last == nil || p.left > 0:
	case r.prior != nil && r.prior.UID() == p.last.UID() && s.matches(r.prior):
		p.last = r.prior
	default:
		p.left = p.changed
	}
	p.changed = r.revision
}

// now takes an entry that was stored after the revision. It returns the change by which
// the view has it.
func (s *selection) now(e *entry, r keepwatch.Revision) (keepwatch.Change, bool) {
	key := e.object.Key()
	if s.unreadable != nil || !s.filter.covers(key) || !s.matches(e.object) {
		return keepwatch.Change{}, false
	}
	p := s.passages[key]
	if p == nil { // no filter tells it from what it was
		return e.since(r), true
	}
	if p.last == nil || p.last.UID() != e.object.UID() {
		return added(e.object), true
	}
	p.stays = true
	return keepwatch.Change{Type: keepwatch.Modified, Revision: e.object.Revision(), Object: e.object}, true
}

// gone are those that have left the view and are not in it any more.
func (s *selection) gone() (gone []*passage) {
	for _, p := range s.order {
		if p.last == nil || p.stays {
			continue
		}
		if p.left == 0 {
			p.left = p.changed
		}
		gone = append(gone, p)
	}
	return gone
}

// buried takes a deletion, of which the graveyard may keep more than the log does.
func (s *selection) buried(t tombstone) {
	p := s.passages[t.object.Key()]
	if p != nil && p.last != nil && p.left == t.revision && p.last.UID() == t.object.UID() {
		p.last = t.object
	}
}

// matches is the filter's answer, unless it has none.
func (s *selection) matches(o keepwatch.Object) bool {
	in, err := s.filter.matches(o)
	if err != nil && s.unreadable == nil {
		s.unreadable = &Unreadable{modified(o, o), err}
	}
	return in
}
