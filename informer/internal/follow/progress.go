package follow

import (
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// progress is how far a handler is: the state whose changes it is receiving, and how many
// of them are left. The handler's goroutine writes it; any goroutine may read it. The zero
// value precedes the first state.
type progress struct {
	target atomic.Pointer[store.Snapshot]
	left   atomic.Int64
}

// start begins the delivery of the changes to a state. It stores their number first, so
// that a reader never sees a newer progress than the handler's, although it may see an older one.
func (p *progress) start(toward *store.Snapshot, left int) {
	p.left.Store(int64(left))
	p.target.Store(toward)
}

// step records one delivered change.
func (p *progress) step() { p.left.Add(-1) }

// reached reports whether all changes up to a revision were delivered.
func (p *progress) reached(r keepwatch.Revision) bool {
	toward := p.target.Load()
	if toward == nil {
		return r == 0
	}
	return toward.Revision() >= r && p.left.Load() == 0
}

// lag returns the number of changes that the handler still has to receive, as long as the
// store does not change.
func (p *progress) lag(s *store.Store) int {
	toward := p.target.Load()
	if toward == nil {
		return 0 // the size of the first state is not known yet
	}
	left := int(p.left.Load())
	further, _, _ := s.Since(toward, exact)
	return left + len(further)
}
