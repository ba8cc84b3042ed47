package follow

import (
	"iter"
	"maps"
	"sync"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// lookup finds the newest value of an object by its key, in one step where a
// snapshot takes one for each level of its tree. The zero value is empty.
type lookup struct {
	mu sync.RWMutex
	// cached is by keepwatch.Key.String, and has the values themselves, so that to find
	// one takes no look at its item; only for those that have to be unpacked and those
	// that may not be shown it has the *item.Item.
	cached map[string]any
	// rejected are the objects that may not be shown, and why.
	rejected map[keepwatch.Key]error
}

// get finds the value of a key, "namespace/name" or "name".
func (l *lookup) get(key string) (value any, ok bool) {
	l.mu.RLock()
	entry, ok := l.cached[key]
	l.mu.RUnlock()
	return visible(entry, ok)
}

// find is get for the parts of a key; namespace may be "".
func (l *lookup) find(key keepwatch.Key) (value any, ok bool) {
	l.mu.RLock()
	entry, ok := l.at(key)
	l.mu.RUnlock()
	return visible(entry, ok)
}

// at looks for a key, without an allocation where it is not very long; the caller has mu locked.
func (l *lookup) at(key keepwatch.Key) (entry any, ok bool) {
	if key.Namespace == "" {
		entry, ok = l.cached[key.Name]
		return entry, ok
	}
	var room [128]byte
	text := append(append(append(room[:0], key.Namespace...), '/'), key.Name...)
	entry, ok = l.cached[string(text)]
	return entry, ok
}

// all finds the values of keys, which it asks for while nothing is written.
func (l *lookup) all(keys func() iter.Seq[keepwatch.Key]) []any {
	found := l.entries(keys)
	n := 0
	for _, entry := range found { // after the lock is given up, since to unpack takes time
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

// fill takes a whole state, and has show show it before anybody reads on.
func (l *lookup) fill(state *store.Snapshot, show func()) {
	next := lookup{cached: make(map[string]any, state.Len()), rejected: map[keepwatch.Key]error{}}
	for o := range state.All() {
		next.put(o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cached, l.rejected = next.cached, next.rejected
	show()
}

// follow takes changes to it, as fill does a state.
func (l *lookup) follow(changes []keepwatch.Change, show func()) {
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
	show()
}

// put takes an object's newest state; the caller has mu locked.
func (l *lookup) put(o keepwatch.Object) {
	l.cached[o.Key().String()] = entry(o)
	if err := o.(*item.Item).Err(); err != nil {
		l.rejected[o.Key()] = err
	} else {
		delete(l.rejected, o.Key())
	}
}

// count are the objects that may be shown, and those that may not and why, of one
// state.
func (l *lookup) count() (shown int, rejected map[keepwatch.Key]error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.cached) - len(l.rejected), maps.Clone(l.rejected)
}
