package follow

import (
	"iter"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Current returns the newest state that readers may see, nil before the first list.
func (f *Follower) Current() *store.Snapshot { return f.applier.current.Load() }

// Get returns the newest value of a key, "namespace/name" or "name".
func (f *Follower) Get(key string) (value any, ok bool) { return f.applier.lookup.get(key) }

// Find is Get for a key in two parts.
func (f *Follower) Find(key keepwatch.Key) (value any, ok bool) { return f.applier.lookup.find(key) }

// FindAll returns the newest values of the keys that keys returns. It calls keys while
// Current does not change.
func (f *Follower) FindAll(keys func() iter.Seq[keepwatch.Key]) []any {
	return f.applier.lookup.all(keys)
}

// AddIndexes adds indexes at any time. It fails if one of their names exists.
func (f *Follower) AddIndexes(functions map[string]store.IndexFunc) error {
	if err := f.store.AddIndexes(functions); err != nil {
		return err
	}
	f.applier.refresh()
	return nil
}
