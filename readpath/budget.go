package readpath

import (
	"sync"
	"sync/atomic"

	"github.com/keepwatch/keepwatch/storage"
)

// Budget bounds the memory that answers need: all encodings that are kept with
// objects and segments, and what large lists hold while they are written. One is shared by all
// resources. It is safe for concurrent use.
type Budget struct {
	turns *turns
	most  int64
	kept  atomic.Int64 // never less than what is kept: what became garbage is still counted

	mu      sync.Mutex
	readers map[*Reader]struct{}
}

// NewBudget makes a budget of so many bytes of encodings. Up to an eighth more is
// kept for a moment.
func NewBudget(most int64) *Budget {
	return &Budget{turns: newTurns(inFlight), most: most, readers: map[*Reader]struct{}{}}
}

// Bytes is how much is kept, as far as known: what became garbage since it was last
// added up is counted, too.
func (b *Budget) Bytes() int64 { return b.kept.Load() }

func (b *Budget) add(s *Reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[s] = struct{}{}
}

func (b *Budget) remove(s *Reader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.readers, s)
}

// keep has something kept, if there is room or can be made.
func (b *Budget) keep(size int, keep func()) {
	if b.kept.Load()+int64(size) > b.most+b.most/8 {
		b.makeRoom()
		if b.kept.Load()+int64(size) > b.most {
			return
		}
	}
	keep()
	b.kept.Add(int64(size)) // behind keep: what makeRoom has seen may be counted twice, never not at all
}

// makeRoom adds up what is kept of the objects that there are, and if that is too
// much gives up what was not asked for since the last time. If even that is not
// enough, everything is in use: then who comes next encodes for himself.
func (b *Budget) makeRoom() {
	if !b.mu.TryLock() {
		return // another does it
	}
	defer b.mu.Unlock()
	before := b.kept.Load() // what others keep meanwhile comes on top, even if it is seen here
	sum := b.sum((*storage.Object).KeptBytes, (*kept).bytes)
	if sum > b.most {
		sum = b.sum((*storage.Object).Drop, (*kept).drop)
	}
	b.kept.Add(sum - before)
}

func (b *Budget) sum(items func(*storage.Object) int64, blocks func(*kept) int64) (n int64) {
	for r := range b.readers {
		state := r.Storage.Store().Snapshot()
		n += r.sumBlocks(state, blocks)
		for o := range state.All() {
			if known, ok := o.(*storage.Object); ok {
				n += items(known)
			}
		}
	}
	return n
}
