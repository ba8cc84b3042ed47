package deletions

import (
	"sync"

	"github.com/keepwatch/keepwatch"
)

// Kept has the deletions at the revision that a stream has reached, for the stream that continues it. The zero value is
// ready for use. It is safe for concurrent use.
type Kept struct {
	mu      sync.Mutex
	at      keepwatch.Revision
	pending Pending
}

// Keep keeps the deletions of a stream that has ended at a revision.
func (k *Kept) Keep(at keepwatch.Revision, p Pending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.pending = at, p
}

// Continue returns the deletions for a stream that begins at a revision. begun reports whether the stream before it
// received a deletion there, or one that waits: there may be more.
func (k *Kept) Continue(from keepwatch.Revision) (p Pending, begun bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == from {
		p = k.pending
	}
	k.at, k.pending = 0, Pending{}
	return p, len(p.at) > 0
}

// Drop forgets the deletions: a list shows what is there.
func (k *Kept) Drop() { k.Continue(0) }
