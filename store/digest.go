package store

import (
	"math/bits"

	"github.com/keepwatch/keepwatch"
)

// digest is an incremental hash of a set of (key, uid, revision). To add or remove an
// element costs O(1), in any order. It is the same in every process.
type digest uint64

func (d digest) with(o keepwatch.Object) digest    { return d + identity(o).at(o.Revision()) }
func (d digest) without(o keepwatch.Object) digest { return d - identity(o).at(o.Revision()) }

// replace exchanges two states of one object: equal keys and UIDs.
func (d digest) replace(old, new keepwatch.Object) digest {
	h := identity(new)
	return d - h.at(old.Revision()) + h.at(new.Revision())
}

// fingerprint is the hash of a key and UID.
type fingerprint uint64

func identity(o keepwatch.Object) fingerprint {
	key := o.Key()
	h := absorb(0x9e3779b97f4a7c15, key.Namespace)
	h = absorb(h, key.Name)
	return fingerprint(absorb(h, string(o.UID())))
}

// at returns the element of a fingerprint at a revision.
func (f fingerprint) at(r keepwatch.Revision) digest {
	return digest(fold(uint64(f)^uint64(r), 0xd6e8feb86659fd93))
}

// absorb hashes a string into h, eight bytes at a time and then the rest, with
// its length, so that no two sequences of strings read the same.
func absorb(h uint64, s string) uint64 {
	h ^= uint64(len(s)) << 56
	for ; len(s) >= 8; s = s[8:] {
		word := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		h = fold(h^word, 0xa0761d6478bd642f)
	}
	rest := uint64(1)
	for i := range len(s) {
		rest = rest<<8 | uint64(s[i])
	}
	return fold(h^rest, 0xe7037ed1a0b428db)
}

// fold mixes two words: the halves of their product, joined.
func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}
