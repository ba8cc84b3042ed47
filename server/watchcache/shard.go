package watchcache

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// shard is what a shard selector selects (KEP-5866): the objects whose UID or namespace has a hash in
// one of some ranges. An object has both whatever its source is, and neither changes before the object
// is created again. It never changes.
type shard struct {
	byNamespace bool
	ranges      []hashRange
}

// hashRange is a range of hashes, with both ends.
type hashRange struct{ first, last uint64 }

// The fields that shard selectors know, and the end of the hashes, which is no hash.
const (
	shardedByUID       = "object.metadata.uid"
	shardedByNamespace = "object.metadata.namespace"
	endOfHashes        = "0x10000000000000000"
)

// Sharded reports whether the cache knows shard selectors: if its configuration or the API server's feature gate
// says so.
func (c *Cache) Sharded() bool {
	return c.config.Sharded || utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch)
}

// shardOf returns the shard that a selector selects. It fails for requirements that the API server's parser rejects.
func shardOf(selector sharding.Selector) (*shard, error) {
	requirements := selector.Requirements()
	s := &shard{byNamespace: requirements[0].Key == shardedByNamespace}
	for _, r := range requirements {
		if r.Key != requirements[0].Key || r.Key != shardedByUID && r.Key != shardedByNamespace {
			return nil, fmt.Errorf("shard matching failed: ranges of %q and %q", requirements[0].Key, r.Key)
		}
		hashes, err := hashesBetween(r.Start, r.End)
		if err != nil {
			return nil, fmt.Errorf("shard matching failed: %w", err)
		}
		s.ranges = append(s.ranges, hashes)
	}
	return s, nil
}

// hashesBetween returns the hashes from start to before end.
func hashesBetween(start, end string) (r hashRange, err error) {
	if r.first, err = strconv.ParseUint(start, 0, 64); err != nil {
		return r, err
	}
	if end == endOfHashes {
		r.last = ^uint64(0)
		return r, nil
	}
	beyond, err := strconv.ParseUint(end, 0, 64)
	if err == nil && beyond <= r.first {
		err = fmt.Errorf("no hash is in [%s, %s)", start, end)
	}
	r.last = beyond - 1
	return r, err
}

// shardHash returns the hash of a UID or namespace.
func shardHash(value string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(value)) // never fails
	return h.Sum64()
}

// contains reports whether an object with a key and the hash of its UID is in the shard.
func (s *shard) contains(key keepwatch.Key, uidHash uint64) bool {
	if s.byNamespace {
		return s.has(shardHash(key.Namespace))
	}
	return s.has(uidHash)
}

// has reports whether a hash is in one of the ranges.
func (s *shard) has(hash uint64) bool {
	for _, r := range s.ranges {
		if r.first <= hash && hash <= r.last {
			return true
		}
	}
	return false
}

// uidHashes are the hashes of the UIDs of a segment's objects, in a row: a list of a small shard would
// otherwise spend most of its time on reaching the objects of the others. They are nil until all objects
// of the segment could be read, and occupy 8 bytes an object.
type uidHashes struct{ atomic.Pointer[[]uint64] }

func newUIDHashes() *store.Memo[*uidHashes] {
	return store.NewMemo(func(store.Segment) *uidHashes { return &uidHashes{} })
}

// uidHashesOf returns the hashes of a segment, nil if an object can't be read.
func (c *Cache) uidHashesOf(segment store.Segment) []uint64 {
	known := c.uidHashes.Of(segment)
	if hashes := known.Load(); hashes != nil {
		return *hashes
	}
	hashes := make([]uint64, 0, segment.Len())
	for o := range segment.All() {
		cached, err := c.Read(o)
		if err != nil {
			return nil
		}
		hashes = append(hashes, cached.content.Load().uidHash)
	}
	known.Store(&hashes)
	return hashes
}
