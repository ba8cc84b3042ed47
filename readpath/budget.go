package readpath

import (
	"sync"
	"sync/atomic"

	"github.com/keepwatch/keepwatch/storage"
)

// Budget bounds the memory that answers need: all encodings that are kept with
// objects, and what large lists hold while they are written. One is shared by all
// resources. It is safe for concurrent use.
type Budget struct {
	turns *turns
	most  int64
	kept  atomic.Int64 // never less than what is kept: what became garbage is still counted

	mu      sync.Mutex
	storage map[*storage.Storage]struct{}
}

// NewBudget makes a budget of so many bytes of encodings. Up to an eighth more is
// kept for a moment.
func NewBudget(most int64) *Budget {
	return &Budget{turns: newTurns(inFlight), most: most, storage: map[*storage.Storage]struct{}{}}
}

// Bytes is how much is kept, as far as known: what became garbage since it was last
// added up is counted, too.
func (b *Budget) Bytes() int64 { return b.kept.Load() }

func (b *Budget) add(s *storage.Storage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.storage[s] = struct{}{}
}

func (b *Budget) remove(s *storage.Storage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.storage, s)
}

// keep keeps an item with its object, if there is room or can be made.
func (b *Budget) keep(o *storage.Object, f form, item []byte) {
	size := int64(len(item))
	if b.kept.Load()+size > b.most+b.most/8 {
		b.makeRoom()
		if b.kept.Load()+size > b.most {
			return
		}
	}
	o.Keep(f, item)
	b.kept.Add(size) // behind Keep: what makeRoom has seen may be counted twice, never not at all
}

// makeRoom adds up what is kept with the objects that there are, and if that is too
// much gives up what was not asked for since the last time. If even that is not
// enough, everything is in use: then who comes next encodes for himself.
func (b *Budget) makeRoom() {
	if !b.mu.TryLock() {
		return // another does it
	}
	defer b.mu.Unlock()
	before := b.kept.Load() // what others keep meanwhile comes on top, even if it is seen here
	sum := b.sum((*storage.Object).KeptBytes)
	if sum > b.most {
		sum = b.sum((*storage.Object).Drop)
	}
	b.kept.Add(sum - before)
}

func (b *Budget) sum(of func(*storage.Object) int64) (n int64) {
	for s := range b.storage {
		for o := range s.Store().Snapshot().All() {
			if known, ok := o.(*storage.Object); ok {
				n += of(known)
			}
		}
	}
	return n
}
