package deletions

import (
	"sync"

	"github.com/keepwatch/keepwatch"
)

// Ended has the deletions at the ends of the batches that a source of leased objects has delivered last. A stream may
// have been cut off within the deletions of a lease, so that the next one asks for the revision before: Ended knows
// what repeats. The zero value is ready for use. It is safe for concurrent use.
type Ended struct {
	mu      sync.Mutex
	listed  keepwatch.Revision
	batches [2]end // of the newest batch, and of the one before it: a target may not have taken the newest
}

type end struct {
	at      keepwatch.Revision
	deleted map[keepwatch.Key]bool
}

// Delivered notes a batch that the source delivers.
func (e *Ended) Delivered(b keepwatch.Batch) {
	deleted := map[keepwatch.Key]bool{}
	for _, c := range b.Changes {
		if c.Type == keepwatch.Deleted && c.Revision == b.To {
			deleted[c.Object.Key()] = true
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches = [2]end{{b.To, deleted}, e.batches[0]}
}

// Listed notes that a list has shown the state at a revision, which is complete.
func (e *Ended) Listed(at keepwatch.Revision) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listed, e.batches = at, [2]end{}
}

// Resume returns the revision to ask for in place of from, and the objects whose deletions at from were delivered.
func (e *Ended) Resume(from keepwatch.Revision) (asked keepwatch.Revision, delivered map[keepwatch.Key]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, end := range e.batches {
		if end.at == from {
			return from - 1, end.deleted
		}
	}
	if e.listed == from {
		return from, nil
	}
	return from - 1, nil
}
