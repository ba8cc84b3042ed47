package readpath

import (
	"iter"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// segmentBlocks is the blocks of a segment, one for each encoding.
type segmentBlocks struct {
	*handle
	mu sync.Mutex // held to make one
}

func (s *Reader) newBlocks() *store.Memo[*segmentBlocks] {
	return store.NewMemo(func(store.Segment) *segmentBlocks { return &segmentBlocks{handle: s.budget.newHandle()} })
}

// segmentBlock returns the block of a segment. It makes and caches the block if it is not cached;
// other readers wait for that. u is how it uses item encodings: a block is a tenth of them, and always cached.
func (s *Reader) segmentBlock(segment store.Segment, body listBody, u use) (*block, error) {
	if !segment.Whole() || !body.cacheable() {
		return s.deflate(segment.All(), body, u)
	}
	if b, ok := s.cachedBlock(segment, body); ok {
		return b, nil
	}
	blocks, key := s.blocks.Of(segment), s.key(body.encoding)
	blocks.mu.Lock()
	defer blocks.mu.Unlock()
	if b, ok := blocks.find(key).(*block); ok {
		return b, nil
	}
	b, err := s.deflate(segment.All(), body, u)
	if err == nil {
		blocks.cache(key, b, cap(b.deflated), listRead)
	}
	return b, err
}

// cachedBlock returns the block of a segment if it is cached.
func (s *Reader) cachedBlock(segment store.Segment, body listBody) (*block, bool) {
	if !body.cacheable() {
		return nil, false
	}
	blocks, ok := s.blocks.Known(segment)
	if !ok {
		return nil, false
	}
	b, ok := blocks.find(s.key(body.encoding)).(*block)
	return b, ok
}

// deflate returns a block of the item encodings of objects.
func (s *Reader) deflate(objects iter.Seq[keepwatch.Object], body listBody, u use) (*block, error) {
	joined, err := s.joinItems(objects, body, u)
	if err != nil {
		return nil, err
	}
	defer putBuffer(joined)
	return compress(joined), nil
}

// joinItems returns the item encodings of objects as they stand in a list, in a buffer for putBuffer.
func (s *Reader) joinItems(objects iter.Seq[keepwatch.Object], body listBody, u use) ([]byte, error) {
	b, first := getBuffer(), true
	once := getBuffer() // the item, if it is read once
	defer func() { putBuffer(once) }()
	for o := range objects {
		var item []byte
		var err error
		if u == onlyRead {
			once, err = s.appendListItem(once[:0], o, body.encoding)
			item = once
		} else {
			item, err = s.listItem(o, body.encoding, u)
		}
		if err != nil {
			return nil, err
		}
		b, first = body.append(b, item, first), false
	}
	return b, nil
}

// objectsOf iterates over selected objects, as Segment.All does.
func objectsOf(objects []*watchcache.Object) iter.Seq[keepwatch.Object] {
	return func(yield func(keepwatch.Object) bool) {
		for _, o := range objects {
			if !yield(o) {
				return
			}
		}
	}
}
