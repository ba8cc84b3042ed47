package storage

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// index is one of the API server's. Its function is asked once for each state of an
// object, which keeps the answer.
type index struct {
	name  string
	index cache.IndexFunc
}

// indexesOf puts indexers in an order.
func indexesOf(indexers *cache.Indexers) (ordered []index) {
	if indexers == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(*indexers)) {
		ordered = append(ordered, index{name, (*indexers)[name]})
	}
	return ordered
}

// unread is the value under which each index finds the objects that can't be read:
// a list by a value must not miss them.
const unread = "\x00unread"

// indexed is under which values each index finds an object.
func (s *Storage) indexed(key keepwatch.Key, decoded runtime.Object) [][]string {
	if len(s.indexes) == 0 {
		return nil
	}
	all := make([][]string, len(s.indexes))
	for i, x := range s.indexes {
		values, err := x.index(decoded)
		if err != nil {
			values = []string{unread}
		}
		all[i] = s.interner.texts(key, values)
	}
	return all
}

// functions are the indexes as the store's.
func (s *Storage) functions() map[string]store.IndexFunc {
	functions := make(map[string]store.IndexFunc, len(s.indexes))
	for i, x := range s.indexes {
		functions[x.name] = func(o keepwatch.Object) []string {
			if known, ok := o.(*Object); ok && known.readable() {
				return known.content.Load().indexed[i]
			}
			return []string{unread}
		}
	}
	return functions
}
