package watchcache

import (
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/store"
)

// Progress returns how the cache follows its source.
func (c *Cache) Progress() reflector.Progress { return c.reflector.Progress() }

// Bytes returns the size of the objects of the newest state, as the source has them. It adds up the sizes of
// segments, most of which are known from the last call.
func (c *Cache) Bytes() (total int64) {
	for segment := range c.store.Snapshot().Segments() {
		total += c.sizes.Of(segment)
	}
	return total
}

func newSizes() *store.Memo[int64] {
	return store.NewMemo(func(segment store.Segment) (total int64) {
		for o := range segment.All() {
			total += int64(size(o))
		}
		return total
	})
}
