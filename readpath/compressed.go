package readpath

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/storage"
	"github.com/keepwatch/keepwatch/store"
)

// kept is where a segment's block is kept in one form, until the budget gives it up.
type kept struct {
	making sync.Mutex
	block  atomic.Pointer[block]
	used   atomic.Bool
}

func (k *kept) load() *block {
	b := k.block.Load()
	if b != nil && !k.used.Load() {
		k.used.Store(true)
	}
	return b
}

// drop gives the block up unless it was asked for since the last drop, and tells how
// much remains.
func (k *kept) drop() (left int64) {
	b := k.block.Load()
	if b == nil {
		return 0
	}
	if k.used.Swap(false) {
		return int64(len(b.deflated))
	}
	k.block.CompareAndSwap(b, nil)
	return 0
}

func (k *kept) bytes() int64 {
	if b := k.block.Load(); b != nil {
		return int64(len(b.deflated))
	}
	return 0
}

// newBlocks makes the memos of compressed segments, one for each form.
func (s *Reader) newBlocks() {
	for f := range s.blocks {
		s.blocks[f] = store.NewMemo(func(store.Segment) *kept { return &kept{} })
	}
}

// sumBlocks adds up something of what is kept of a state's segments.
func (s *Reader) sumBlocks(state *store.Snapshot, of func(*kept) int64) (n int64) {
	for segment := range state.Segments() {
		for _, memo := range s.blocks {
			if k, ok := memo.Known(segment); ok {
				n += of(k)
			}
		}
	}
	return n
}

// compressed is a segment's block, made once and kept with the segment. While one
// reader makes it, others wait for that.
func (s *Reader) compressed(segment store.Segment, as items) (*block, error) {
	if !segment.Whole() || as.form == tableJSON { // which has another age each time
		return s.deflate(segment.All(), as)
	}
	k := s.blocks[as.form].Of(segment)
	if b := k.load(); b != nil {
		return b, nil
	}
	k.making.Lock()
	defer k.making.Unlock()
	if b := k.load(); b != nil {
		return b, nil
	}
	b, err := s.deflate(segment.All(), as)
	if err == nil {
		s.budget.keep(len(b.deflated), func() {
			k.used.Store(true)
			k.block.Store(b)
		})
	}
	return b, err
}

func (s *Reader) deflate(objects iter.Seq[keepwatch.Object], as items) (*block, error) {
	joined, err := s.join(objects, as)
	if err != nil {
		return nil, err
	}
	defer giveBuffer(joined)
	return compress(joined), nil
}

// join puts objects' items together as they stand in a list. The result is to be
// given back.
func (s *Reader) join(objects iter.Seq[keepwatch.Object], as items) ([]byte, error) {
	b, first := takeBuffer(), true
	for o := range objects {
		known, err := s.Storage.Read(o)
		if err != nil {
			return nil, err
		}
		item, err := s.item(known, as.form)
		if err != nil {
			return nil, err
		}
		b, first = as.append(b, item, first), false
	}
	return b, nil
}

// selected iterates over objects as a segment does.
func selected(objects []*storage.Object) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for _, o := range objects {
			if !yield(o) {
				return
			}
		}
	}
}
