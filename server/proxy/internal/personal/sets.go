package personal

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"weak"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// sets has each set of namespaces once, as long as a view or a request uses it: those of a user's list and watch are
// mostly equal, and those of the users of a group. It is safe for concurrent use.
type sets struct {
	mu  sync.Mutex
	all map[setKey]weak.Pointer[watchcache.Namespaces]
}

// setKey identifies a set.
type setKey struct {
	digest [sha256.Size]byte
	byName bool
}

// of returns the set of some namespaces; see watchcache.NewNamespaces. Mostly that is the last one, which is not built
// again. It may be nil.
func (s *sets) of(uids map[string]keepwatch.UID, byName bool, last *watchcache.Namespaces) *watchcache.Namespaces {
	if last != nil && last.Len() == len(uids) && has(uids, last) {
		return last
	}
	set := watchcache.NewNamespaces(uids, byName)
	key := setKey{[sha256.Size]byte(set.Digest()), byName}
	s.mu.Lock()
	defer s.mu.Unlock()
	if same := s.all[key].Value(); same != nil {
		return same
	}
	if s.all == nil {
		s.all = map[setKey]weak.Pointer[watchcache.Namespaces]{}
	}
	s.all[key] = weak.Make(set)
	runtime.AddCleanup(set, s.drop, key)
	return set
}

// has reports whether all namespaces of a set are among some.
func has(uids map[string]keepwatch.UID, set *watchcache.Namespaces) bool {
	for namespace, uid := range set.All() {
		if is, ok := uids[namespace]; !ok || is != uid {
			return false
		}
	}
	return true
}

// drop forgets a set that nobody uses, unless there is another one in its place.
func (s *sets) drop(key setKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[key].Value() == nil {
		delete(s.all, key)
	}
}
