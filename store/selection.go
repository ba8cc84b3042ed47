package store

import "github.com/keepwatch/keepwatch"

// selection computes the difference between the state at a revision and the newest one, as
// a filter by content sees it. It is exact: the prior states of the changes since the
// revision say which objects matched then.
type selection struct {
	filter      Filter
	graveyard   *graveyard
	memberships map[keepwatch.Key]*membership
	order       []*membership // by the first change of each object
	unreadable  *Unreadable
}

// membership records how an object left and entered the view since the revision.
type membership struct {
	// last is the object's last state in the view before it left for the first time, nil if
	// it was not in the view at the revision.
	last keepwatch.Object
	// left is the revision at which it left first, 0 if it has not. The view deletes it
	// there, even if it entered again: a consumer that resumes in between needs the deletion.
	// If only a list revealed that it left, there is no such revision; then an object that is
	// in the view again is Modified, as it is between the states at both ends.
	left    keepwatch.Revision
	changed keepwatch.Revision // of the newest change so far
	stayed  bool               // the same object has been in the view ever since
}

// selectedDifference returns the difference since a revision that the attribute log covers.
func (v *view) selectedDifference(r keepwatch.Revision, f Filter) ([]keepwatch.Change, *Unreadable) {
	s := selection{filter: f, graveyard: v.graveyard, memberships: map[keepwatch.Key]*membership{}}
	v.attributes.since(r, s.replaced)
	for i := range v.window.len() {
		s.logEntry(v.window.at(i), v.snapshot.epoch)
	}
	var remain []keepwatch.Change
	v.snapshot.tree.root.newer(r, f.Namespace, func(e *entry) {
		if c, ok := s.current(e, r); ok {
			remain = append(remain, c)
		}
	})
	if s.unreadable != nil {
		return nil, s.unreadable
	}
	left := s.left()
	v.graveyard.since(r, s.tombstone)
	changes := make([]keepwatch.Change, 0, len(left)+len(remain))
	for _, p := range left {
		changes = append(changes, v.removedBy(p.last, p.left))
	}
	return append(changes, remain...), nil
}

// logEntry adds an entry of the window.
func (s *selection) logEntry(m logEntry, epoch uint64) {
	if m.from.Epoch != epoch {
		return
	}
	for _, c := range m.changes() {
		r := replaced{c.Object.Key(), c.Prior, c.Revision}
		if m.isGap() {
			r.revision = m.to.Revision
		}
		s.replaced(r)
	}
}

// replaced adds the next change.
func (s *selection) replaced(r replaced) {
	if s.unreadable != nil || !s.filter.covers(r.key) {
		return
	}
	p := s.memberships[r.key]
	switch first := p == nil; {
	case first:
		p = &membership{}
		s.memberships[r.key] = p
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

// current adds an entry that was stored after the revision. It returns the change by which
// it is in the view, and false if it is not.
func (s *selection) current(e *entry, r keepwatch.Revision) (keepwatch.Change, bool) {
	key := e.object.Key()
	if s.unreadable != nil || !s.filter.covers(key) || !s.matches(e.object) {
		return keepwatch.Change{}, false
	}
	p := s.memberships[key]
	if p == nil { // every filter judges it as it was at the revision
		return e.since(r), true
	}
	if p.last == nil || p.left > 0 && !s.graveyard.revealed(p.left) || p.last.UID() != e.object.UID() {
		return added(e.object), true
	}
	p.stayed = true
	return keepwatch.Change{Type: keepwatch.Modified, Revision: e.object.Revision(), Object: e.object}, true
}

// left returns the objects that left the view, whether they entered it again or not.
func (s *selection) left() (left []*membership) {
	for _, p := range s.order {
		if p.last == nil || p.stayed {
			continue
		}
		if p.left == 0 {
			p.left = p.changed
		}
		left = append(left, p)
	}
	return left
}

// tombstone adds a deletion: its final state may be complete, which the log's is not.
func (s *selection) tombstone(t tombstone) {
	p := s.memberships[t.object.Key()]
	if p != nil && p.last != nil && p.left == t.revision && p.last.UID() == t.object.UID() {
		p.last = t.object
	}
}

// matches asks the filter, and records the first object that it cannot judge.
func (s *selection) matches(o keepwatch.Object) bool {
	in, err := s.filter.matches(o)
	if err != nil && s.unreadable == nil {
		s.unreadable = &Unreadable{modified(o, o), err}
	}
	return in
}
