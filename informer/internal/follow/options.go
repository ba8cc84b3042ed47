package follow

import (
	"time"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// Options configure a follower.
type Options struct {
	// CrashOnPanic lets a panic in a handler end the process.
	CrashOnPanic bool
	// DropManagedFields removes metadata.managedFields.
	DropManagedFields bool
	// Compact reduces the history of the store. The source must return packed items.
	Compact bool
	// Transform changes each new state of an object; nil for none.
	Transform func(any) (any, error)
	// Resync is the period at which resyncs can be due, 0 for never. Handlers that are added
	// before the start lower it.
	Resync time.Duration
	// Paged makes the first list a paged one: pages cost a server half of what a stream
	// costs, and the informer three quarters.
	Paged bool
	// StartupDeadline and Seed: see reflector.Options.
	StartupDeadline time.Duration
	Seed            uint64
}

// store returns the options of the store. The history is for handlers that lag a
// little; others receive the difference.
func (o Options) store() store.Options {
	s := store.Options{
		WindowBytes:    8 << 20,
		WindowAge:      5 * time.Minute,
		Tombstones:     10_000,
		TombstoneBytes: 4 << 20,
		Size:           func(o keepwatch.Object) int { return o.(*item.Item).Size() },
	}
	if o.Compact {
		s.WindowBytes, s.TombstoneBytes = 256<<10, 256<<10
	}
	return s
}
