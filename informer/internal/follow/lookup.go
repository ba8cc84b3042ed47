package follow

import (
	"iter"
	"maps"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// lookup finds the newest value of an object by its key, in one step. A snapshot needs one step
// for each level of its tree. The zero value is empty.
type lookup struct {
	mu sync.RWMutex
	// cached has values by keepwatch.Key.String, so that a read does not access the item. For
	// packed and rejected objects it has the *item.Item.
	cached map[string]any
	// rejected has the rejected objects, and why.
	rejected map[keepwatch.Key]error
}

// get returns the value of a key, "namespace/name" or "name".
func (l *lookup) get(key string) (value any, ok bool) {
	l.mu.RLock()
	entry, ok := l.cached[key]
	l.mu.RUnlock()
	return visible(entry, ok)
}

// find is get for a key in two parts. The namespace may be "".
func (l *lookup) find(key keepwatch.Key) (value any, ok bool) {
	l.mu.RLock()
	entry, ok := l.at(key)
	l.mu.RUnlock()
	return visible(entry, ok)
}

// at returns the entry of a key, without an allocation unless the key is very long. The caller
// holds mu.
func (l *lookup) at(key keepwatch.Key) (entry any, ok bool) {
	if key.Namespace == "" {
		entry, ok = l.cached[key.Name]
		return entry, ok
	}
	var buffer [128]byte
	text := append(append(append(buffer[:0], key.Namespace...), '/'), key.Name...)
	entry, ok = l.cached[string(text)]
	return entry, ok
}

// all returns the values of the keys that keys returns. It calls keys while it blocks writes.
func (l *lookup) all(keys func() iter.Seq[keepwatch.Key]) []any {
	found := l.entries(keys)
	n := 0
	for _, entry := range found { // without the lock, because unpacking takes time
		if value, ok := visible(entry, true); ok {
			found[n] = value
			n++
		}
	}
	return found[:n]
}

func (l *lookup) entries(keys func() iter.Seq[keepwatch.Key]) []any {
	l.mu.RLock()
	defer l.mu.RUnlock()
	found := []any{}
	for key := range keys() {
		if entry, ok := l.at(key); ok {
			found = append(found, entry)
		}
	}
	return found
}

func visible(entry any, ok bool) (value any, _ bool) {
	i, special := entry.(*item.Item)
	switch {
	case !special:
		return entry, ok
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

// fill replaces all entries by a state. It calls publish before any further read.
func (l *lookup) fill(state *store.Snapshot, publish func()) {
	next := lookup{cached: make(map[string]any, state.Len()), rejected: map[keepwatch.Key]error{}}
	for o := range state.All() {
		next.put(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cached, l.rejected = next.cached, next.rejected
	publish()
}

// apply applies changes. It calls publish before any further read.
func (l *lookup) apply(changes []keepwatch.Change, publish func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if c.Type == keepwatch.Deleted {
			delete(l.cached, c.Object.Key().String())
			delete(l.rejected, c.Object.Key())
		} else {
			l.put(c.Object)
		}
	}
	publish()
}

// put sets an object's newest state. The caller holds mu.
func (l *lookup) put(o keepwatch.Object) {
	l.cached[o.Key().String()] = entry(o)
	if err := o.(*item.Item).Err(); err != nil {
		l.rejected[o.Key()] = err
	} else {
		delete(l.rejected, o.Key())
	}
}

// count returns the number of shown objects and the rejected objects with their reasons, of one
// state.
func (l *lookup) count() (shown int, rejected map[keepwatch.Key]error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.cached) - len(l.rejected), maps.Clone(l.rejected)
}
