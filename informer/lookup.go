package informer

import (
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// lookup finds the newest value of an object by its key, in one step where a
// snapshot takes one for each level of its tree. The zero value is empty.
type lookup struct {
	mu sync.RWMutex
	// held is by keepwatch.Key.String, and has the values themselves, so that to find
	// one takes no look at its item; only for those that have to be unpacked and those
	// that may not be shown it has the *item.Item.
	held map[string]any
}

// get finds the value of a key, "namespace/name" or "name".
func (l *lookup) get(key string) (value any, ok bool) {
	l.mu.RLock()
	held, ok := l.held[key]
	l.mu.RUnlock()
	return visible(held, ok)
}

// find is get for the parts of a key; namespace may be "".
func (l *lookup) find(namespace, name string) (value any, ok bool) {
	if namespace == "" {
		return l.get(name)
	}
	var room [128]byte
	key := append(append(append(room[:0], namespace...), '/'), name...)
	l.mu.RLock()
	held, ok := l.held[string(key)]
	l.mu.RUnlock()
	return visible(held, ok)
}

func visible(held any, ok bool) (value any, _ bool) {
	i, special := held.(*item.Item)
	switch {
	case !special:
		return held, ok
	case i.Err() != nil:
		return nil, false
	}
	return i.Value(), true
}

func entry(o keepwatch.Object) any {
	i := o.(*item.Item)
	if value, ok := i.Plain(); ok {
		return value
	}
	return i
}

// fill takes a whole state.
func (l *lookup) fill(state *store.Snapshot) {
	all := make(map[string]any, state.Len())
	for o := range state.All() {
		all[o.Key().String()] = entry(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = all
}

// follow takes changes to it.
func (l *lookup) follow(changes []keepwatch.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if key := c.Object.Key().String(); c.Type == keepwatch.Deleted {
			delete(l.held, key)
		} else {
			l.held[key] = entry(c.Object)
		}
	}
}
