package etcd

import (
	"strings"

	"github.com/keepwatch/keepwatch"
)

// prefix is the common prefix of one resource's storage keys. Invariant: it ends in
// "/", so that one resource's or namespace's name may begin with another's
// (kubernetes #25342).
type prefix string

// key parses a storage key below the prefix: "namespace/name", or the name alone. It
// is the inverse of storageKey for every key, including those that no API server writes.
func (p prefix) key(storageKey []byte) keepwatch.Key {
	rest := string(storageKey[len(p):])
	namespace, name, ok := strings.Cut(rest, "/")
	if !ok || namespace == "" || name == "" {
		return keepwatch.Key{Name: rest}
	}
	return keepwatch.Key{Namespace: namespace, Name: name}
}

func (p prefix) storageKey(k keepwatch.Key) string { return string(p) + k.String() }

func (p prefix) covers(storageKey []byte) bool {
	return len(storageKey) > len(p) && string(storageKey[:len(p)]) == string(p)
}

// first returns a lower bound of the resource's keys. The prefix itself is not a key.
func (p prefix) first() []byte { return append([]byte(p), 0) }

// end returns the upper bound of the resource's keys, exclusive.
func (p prefix) end() []byte {
	end := []byte(p)
	end[len(end)-1]++
	return end
}
