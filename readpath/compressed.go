package readpath

import (
	"iter"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
	"github.com/keepwatch/keepwatch/watchcache"
)

// packed is a segment's blocks, one in each form.
type packed struct {
	*holder
	making sync.Mutex
}

// newBlocks makes the memo of segments' blocks.
func (s *Reader) newBlocks() *store.Memo[*packed] {
	return store.NewMemo(func(store.Segment) *packed { return &packed{holder: s.budget.hold()} })
}

// compressed is a segment's block, made once and cached with the segment. While one
// reader makes it, others wait for that.
func (s *Reader) compressed(segment store.Segment, as items) (*block, error) {
	if !segment.Whole() || as.form == tableJSON { // which has another age each time
		return s.deflate(segment.All(), as)
	}
	if b, ok := s.knownBlock(segment, as); ok {
		return b, nil
	}
	known, key := s.blocks.Of(segment), s.key(as.form)
	known.making.Lock()
	defer known.making.Unlock()
	if b, ok := known.find(key).(*block); ok {
		return b, nil
	}
	b, err := s.deflate(segment.All(), as)
	if err == nil {
		known.cache(key, b, cap(b.deflated), recurring)
	}
	return b, err
}

// knownBlock is a segment's block if that need not be made.
func (s *Reader) knownBlock(segment store.Segment, as items) (*block, bool) {
	if as.form == tableJSON {
		return nil, false
	}
	known, ok := s.blocks.Known(segment)
	if !ok {
		return nil, false
	}
	b, ok := known.find(s.key(as.form)).(*block)
	return b, ok
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
		item, err := s.readItem(o, as.form, once)
		if err != nil {
			return nil, err
		}
		b, first = as.append(b, item, first), false
	}
	return b, nil
}

// selected iterates over objects as a segment does.
func selected(objects []*watchcache.Object) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for _, o := range objects {
			if !yield(o) {
				return
			}
		}
	}
}
