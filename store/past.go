package store

import (
	"slices"
	"sync"
)

// maxPast bounds the states that past holds.
const maxPast = 4

// past has the states that At returned last, the newest use first: all pages of a list show one state, which would
// otherwise be made again for each of them. It holds only states to which the window reaches back, so that it keeps no
// objects alive that the window does not have.
type past struct {
	mu     sync.Mutex
	states []*Snapshot
}

// find returns the state at a cursor, nil if there is none.
func (p *past) find(at Cursor) *Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.states, func(s *Snapshot) bool { return s.Cursor() == at })
	if i < 0 {
		return nil
	}
	found := p.states[i]
	copy(p.states[1:i+1], p.states[:i])
	p.states[0] = found
	return found
}

// add adds a state, unless the window of the newest view no longer reaches back to it.
func (p *past) add(s *Store, then *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.view.Load().reaches(then) {
		return
	}
	if len(p.states) == maxPast {
		p.states = p.states[:maxPast-1]
	}
	p.states = slices.Insert(p.states, 0, then)
}

// trim drops the states to which the window of a view does not reach back. The writer calls it after it published the
// view.
func (p *past) trim(v *view) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = slices.DeleteFunc(p.states, func(s *Snapshot) bool { return !v.reaches(s) })
}

// clear drops all states.
func (p *past) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.states = nil
}

// reaches reports whether the window reaches back to a state.
func (v *view) reaches(then *Snapshot) bool {
	now := v.snapshot.Cursor()
	return then.epoch == now.Epoch && then.revision >= v.window.oldest(now)
}
