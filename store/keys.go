package store

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// keys is an immutable list of keys in rising order. A search compares the common prefix of
// all keys once, and the next eight bytes as one number, so that it reads few strings. The
// list is never empty.
type keys struct {
	list   []keepwatch.Key
	shared int // length of the common prefix of "namespace/name"
	// heads has the eight bytes of each key that follow the prefix, zeros past its end.
	heads []uint64
}

// newKeys copies the list.
func newKeys(list []keepwatch.Key) *keys {
	k := keysOver(slices.Clone(list), commonPrefix(list[0], list[len(list)-1]))
	for _, key := range list {
		k.heads = append(k.heads, head(key, k.shared))
	}
	return k
}

// keysOver does not copy the list. It allocates room for the heads together with the keys.
func keysOver(list []keepwatch.Key, shared int) *keys {
	k := new(struct {
		keys
		room [fill + 1]uint64
	})
	k.list, k.shared, k.heads = list, shared, k.room[:0]
	return &k.keys
}

// find returns the index of key, or where it would be, and whether the list has it.
func (k *keys) find(key keepwatch.Key) (int, bool) {
	if commonPrefix(k.list[0], key) < k.shared {
		if key.Compare(k.list[0]) < 0 {
			return 0, false
		}
		return len(k.list), false
	}
	return k.guess(key)
}

// guess is like find, without comparing the common prefix. It is right about whether the
// list has the key, but if not, the index may be wrong.
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

// insert returns the keys with another key at an index.
func (k *keys) insert(i int, key keepwatch.Key) *keys {
	list := slices.Concat(k.list[:i], []keepwatch.Key{key}, k.list[i:])
	shared := commonPrefix(list[0], list[len(list)-1])
	if shared != k.shared {
		return newKeys(list)
	}
	next := keysOver(list, shared)
	next.heads = append(append(append(next.heads, k.heads[:i]...), head(key, shared)), k.heads[i:]...)
	return next
}

// remove returns the keys without the one at an index. The common prefix of the others may
// be longer than shared, which is harmless.
func (k *keys) remove(i int) *keys {
	next := keysOver(slices.Concat(k.list[:i], k.list[i+1:]), k.shared)
	next.heads = append(append(next.heads, k.heads[:i]...), k.heads[i+1:]...)
	return next
}

// replace returns the keys with another key at an index.
func (k *keys) replace(i int, key keepwatch.Key) *keys {
	list := slices.Clone(k.list)
	list[i] = key
	return newKeys(list)
}

// commonPrefix returns the length of the common prefix of two keys' "namespace/name".
func commonPrefix(a, b keepwatch.Key) int {
	if a.Namespace == b.Namespace {
		return len(a.Namespace) + 1 + commonBytes(a.Name, b.Name)
	}
	return commonBytes(a.Namespace, b.Namespace) // where one ends, the other continues with a slash
}

// commonBytes returns the length of the common prefix of two strings, comparing eight bytes at a time.
func commonBytes(a, b string) int {
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

// word returns eight bytes of s as a number of the same order.
func word(s string, at int) uint64 { return binary.BigEndian.Uint64([]byte(s[at : at+8])) }

// head returns the eight bytes of "namespace/name" after the first skip bytes.
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
