package store

import (
	"encoding/binary"
	"slices"

	"github.com/keepwatch/keepwatch"
)

// keys is an immutable list of keys in rising order, made for searching: what
// all of them begin with is compared once, and of the rest eight bytes as one
// number, so that a search reads few strings. It is never empty.
type keys struct {
	list   []keepwatch.Key
	shared int      // bytes of "namespace/name" that all keys begin with
	heads  []uint64 // of each key the eight bytes that follow, zeros past its end
}

// newKeys copies the list.
func newKeys(list []keepwatch.Key) *keys {
	k := &keys{list: slices.Clone(list), heads: make([]uint64, len(list))}
	k.shared = common(list[0], list[len(list)-1])
	for i, key := range list {
		k.heads[i] = head(key, k.shared)
	}
	return k
}

// find is the index of key, or where it would be.
func (k *keys) find(key keepwatch.Key) (int, bool) {
	low, high := 0, len(k.list)
	if common(k.list[0], key) < k.shared {
		if key.Compare(k.list[0]) < 0 {
			return low, false
		}
		return high, false
	}
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
	return &keys{
		list: list, shared: shared,
		heads: slices.Concat(k.heads[:i], []uint64{head(key, shared)}, k.heads[i:]),
	}
}

// remove takes out the key at an index. What the others share may be longer than
// is noted then, which does no harm.
func (k *keys) remove(i int) *keys {
	return &keys{
		list: slices.Concat(k.list[:i], k.list[i+1:]), shared: k.shared,
		heads: slices.Concat(k.heads[:i], k.heads[i+1:]),
	}
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

func alike(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// head is the eight bytes of "namespace/name" after the first skip.
func head(key keepwatch.Key, skip int) uint64 {
	if after := skip - len(key.Namespace) - 1; after >= 0 && after+8 <= len(key.Name) {
		return binary.BigEndian.Uint64([]byte(key.Name[after : after+8]))
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
