package access

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// remembered is a decision of the server about a request.
type remembered struct {
	allowed bool
	at      time.Time
	number  uint64 // of the last change or renewal before the server was asked
	starts  uint64 // Probe.Starts before that
}

// decisions remembers the last decision about each request. Denials have a cache of their own: a user without any
// right, who can ask for a great many things, evicts no permission of others.
type decisions struct {
	permissions *cache.LRUExpireCache // decision by digest
	denials     *cache.LRUExpireCache
	denialsFor  time.Duration // how long a denial is used while nothing changes
}

// newDecisions returns no decisions yet, of which a number of each kind are remembered.
func newDecisions(most int, denialsFor time.Duration) decisions {
	return decisions{cache.NewLRUExpireCache(most), cache.NewLRUExpireCache(most), denialsFor}
}

func (d decisions) add(about digest, made remembered) {
	if made.allowed {
		d.denials.Remove(about)
		d.permissions.Add(about, made, outageFor)
		return
	}
	d.permissions.Remove(about)
	d.denials.Add(about, made, d.denialsFor)
}

// last returns the last decision about a request, the zero decision if none is remembered.
func (d decisions) last(about digest) (last remembered) {
	for _, c := range []*cache.LRUExpireCache{d.permissions, d.denials} {
		if found, ok := c.Get(about); ok && found.(remembered).at.After(last.at) {
			last = found.(remembered)
		}
	}
	return last
}
