package store

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// keys is an immutable list of keys in rising order, made for searching: what
// all of them begin with is compared once, and of the rest eight bytes as one
// number, so that a search reads few strings. It is never empty.
type keys struct {
	list   []keepwatch.Key
	shared int // bytes of "namespace/name" that all keys begin with
	// heads has of each key the eight bytes that follow, zeros past its end.
	heads []uint64
}

// newKeys copies the list.
func newKeys(list []keepwatch.Key) *keys {
	k := keysOver(slices.Clone(list), common(list[0], list[len(list)-1]))
	for _, key := range list {
		k.heads = append(k.heads, head(key, k.shared))
	}
	return k
}

// keysOver takes the list, and has room for its heads in the same allocation.
func keysOver(list []keepwatch.Key, shared int) *keys {
	k := new(struct {
		keys
		room [fill + 1]uint64
	})
	k.list, k.shared, k.heads = list, shared, k.room[:0]
	return &k.keys
}

// find is the index of key, or where it would be.
func (k *keys) find(key keepwatch.Key) (int, bool) {
	if common(k.list[0], key) < k.shared {
		if key.Compare(k.list[0]) < 0 {
			return 0, false
		}
		return len(k.list), false
	}
	return k.guess(key)
}

// guess is find for a key that may be in the list. For one that is not it does not
// find it, but may be wrong about where it would be. It spares a look at the
// strings of the list's first.
func (k *keys) guess(key keepwatch.Key) (int, bool) {
	low, high := 0, len(k.list)
	head := head(key, k.shared)
	for low < high {
		middle := int(uint(low+high) / 2)
		c := 0
		if k.heads[middle] == head {
			if c = key.Compare(k.list[middle]); c == 0 {
				return middle, true
			}
		}
		if c > 0 || k.heads[middle] < head {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, false
}

// insert adds a key at an index.
func (k *keys) insert(i int, key keepwatch.Key) *keys {
	list := slices.Concat(k.list[:i], []keepwatch.Key{key}, k.list[i:])
	shared := common(list[0], list[len(list)-1])
	if shared != k.shared {
		return newKeys(list)
	}
	next := keysOver(list, shared)
	next.heads = append(append(append(next.heads, k.heads[:i]...), head(key, shared)), k.heads[i:]...)
	return next
}

// remove takes out the key at an index. What the others share may be longer than
// is noted then, which does no harm.
func (k *keys) remove(i int) *keys {
	next := keysOver(slices.Concat(k.list[:i], k.list[i+1:]), k.shared)
	next.heads = append(append(next.heads, k.heads[:i]...), k.heads[i+1:]...)
	return next
}

// replace exchanges the key at an index.
func (k *keys) replace(i int, key keepwatch.Key) *keys {
	list := slices.Clone(k.list)
	list[i] = key
	return newKeys(list)
}

// common counts the bytes of "namespace/name" that two keys begin with alike.
func common(a, b keepwatch.Key) int {
	if a.Namespace == b.Namespace {
		return len(a.Namespace) + 1 + alike(a.Name, b.Name)
	}
	return alike(a.Namespace, b.Namespace) // where one ends, it goes on with a slash
}

// alike counts the bytes that two strings begin with alike, eight at a time.
func alike(a, b string) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if differ := word(a, i) ^ word(b, i); differ != 0 {
			return i + bits.LeadingZeros64(differ)/8
		}
	}
	for ; i < n && a[i] == b[i]; i++ {
	}
	return i
}

// word is eight bytes of s as a number that orders as they do.
func word(s string, at int) uint64 { return binary.BigEndian.Uint64([]byte(s[at : at+8])) }

// head is the eight bytes of "namespace/name" after the first skip.
func head(key keepwatch.Key, skip int) uint64 {
	if after := skip - len(key.Namespace) - 1; after >= 0 && after+8 <= len(key.Name) {
		return word(key.Name, after)
	}
	head, room := uint64(0), 8
	add := func(s string) {
		for i := 0; i < len(s) && room > 0; i++ {
			head, room = head<<8|uint64(s[i]), room-1
		}
	}
	if skip <= len(key.Namespace) {
		add(key.Namespace[skip:])
		add("/")
		skip = len(key.Namespace) + 1
	}
	add(key.Name[min(len(key.Name), skip-len(key.Namespace)-1):])
	return head << (8 * room)
}
