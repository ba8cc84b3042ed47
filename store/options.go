package store

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Options bound what a store remembers beyond the current state. The zero value
// of each field means its default.
type Options struct {
	// WindowBytes bounds the history: the objects that its changes carry, new and
	// prior, by Size. Default 64 MiB. The newest delivery is kept whatever its size.
	WindowBytes int64
	// WindowAge bounds the history by time. Default 15 minutes. It is applied when a
	// change arrives, so a quiet store may hold older history.
	WindowAge time.Duration
	// Tombstones bounds how many deletions are remembered behind the window.
	// Default 100,000.
	Tombstones int
	// TombstoneBytes bounds the last states that tombstones keep in full; older ones
	// keep what Slim leaves of them. Default 16 MiB.
	TombstoneBytes int64
	// Slim returns what is kept of a deleted object beyond TombstoneBytes, metadata
	// for example. Default: the object itself, so that tombstones beyond
	// TombstoneBytes are forgotten.
	Slim func(keepwatch.Object) keepwatch.Object
	// SlimBytes bounds what Slim has left of those; older tombstones are forgotten.
	// Default 64 MiB.
	SlimBytes int64
	// Attributes returns what is kept of a state, prior, once the change that replaced it
	// leaves the window: an object of its key, UID and revision that each Filter.Match
	// judges like prior. It returns nil if each judges prior like next, the state that
	// replaced it; next is nil if prior was deleted. With it, watchers that filter by
	// content get the exact difference behind the window, or Expired. Default: nothing is
	// kept, and what matched behind the window is not known.
	Attributes func(prior, next keepwatch.Object) keepwatch.Object
	// AttributeBytes bounds what Attributes has left; the oldest is forgotten. Default 32
	// MiB.
	AttributeBytes int64
	// Size estimates an object's bytes. Default: 1 KiB each.
	Size func(keepwatch.Object) int
}

func (o Options) withDefaults() Options {
	if o.WindowBytes <= 0 {
		o.WindowBytes = 64 << 20
	}
	if o.WindowAge <= 0 {
		o.WindowAge = 15 * time.Minute
	}
	if o.Tombstones <= 0 {
		o.Tombstones = 100_000
	}
	if o.TombstoneBytes <= 0 {
		o.TombstoneBytes = 16 << 20
	}
	if o.SlimBytes <= 0 {
		o.SlimBytes = 64 << 20
	}
	if o.AttributeBytes <= 0 {
		o.AttributeBytes = 32 << 20
	}
	if o.Size == nil {
		o.Size = func(keepwatch.Object) int { return 1 << 10 }
	}
	return o
}
