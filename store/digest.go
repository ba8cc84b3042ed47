package store

import "github.com/keepwatch/keepwatch"

// digest sums up a set of (key, uid, revision), so that adding and taking away
// one element costs O(1) and the order does not matter.
type digest uint64

func (d digest) with(o keepwatch.Object) digest    { return d + fingerprint(o) }
func (d digest) without(o keepwatch.Object) digest { return d - fingerprint(o) }

// fingerprint is FNV-1a over the parts, each followed by a byte that none of them
// contains, and mixed so that sums of them don't cancel out.
func fingerprint(o keepwatch.Object) digest {
	h := uint64(14695981039346656037)
	key := o.Key()
	for _, part := range [...]string{key.Namespace, key.Name, string(o.UID())} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	h ^= uint64(o.Revision()) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return digest(h ^ h>>32)
}
