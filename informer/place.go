package informer

import (
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// place is where a handler stands: on its way to a state, with so many changes
// left to be told of. Its handler's goroutine moves it and anybody may read it. The
// zero value is before the first state.
type place struct {
	toward atomic.Pointer[store.Snapshot]
	left   atomic.Int64
}

// head sets out for a state. What is left is stored first, so that nobody takes
// the handler for further than it is; for a moment, less far is possible.
func (p *place) head(toward *store.Snapshot, left int) {
	p.left.Store(int64(left))
	p.toward.Store(toward)
}

// step is one change nearer.
func (p *place) step() { p.left.Add(-1) }

// reached reports whether all changes up to a revision have been told.
func (p *place) reached(r keepwatch.Revision) bool {
	toward := p.toward.Load()
	if toward == nil {
		return r == 0
	}
	return toward.Revision() >= r && p.left.Load() == 0
}

// behind is how many changes are left to be told to become equal to a store: as
// many as the handler will be told if nothing more happens.
func (p *place) behind(s *store.Store) int {
	toward := p.toward.Load()
	if toward == nil {
		return 0 // and how much it begins with is not known yet
	}
	left := int(p.left.Load())
	further, _, _ := s.Since(toward, exact)
	return left + len(further)
}
