package store

import (
	"time"

	"github.com/keepwatch/keepwatch"
)

// Options bound what a store retains beyond the current state. The zero value
// of each field means its default.
type Options struct {
	// WindowBytes bounds the history: the objects that its changes carry, new and
	// prior, by Size. Default 64 MiB. The newest delivery is always in it, whatever its
	// size.
	WindowBytes int64
	// WindowAge bounds the history by time. Default 15 minutes. It is applied when a
	// change arrives, so the history of a quiet store may be older.
	WindowAge time.Duration
	// Tombstones bounds the number of deletions older than the window that are stored.
	// Default 100,000.
	Tombstones int
	// TombstoneBytes bounds the bytes of the complete last states that tombstones store.
	// Tombstones beyond it store the results of Slim. Default 16 MiB.
	TombstoneBytes int64
	// Slim returns the reduced state that a tombstone stores beyond TombstoneBytes, metadata
	// for example. Default: none, and the store drops tombstones beyond TombstoneBytes.
	Slim func(keepwatch.Object) keepwatch.Object
	// SlimBytes bounds the bytes of the reduced states. The store drops the oldest tombstones
	// beyond it. Default 64 MiB.
	SlimBytes int64
	// Attributes returns the object that the store retains of a state, prior, when the change
	// that replaced prior leaves the window. It has prior's key, UID and revision, and each
	// Filter.Match returns the same for it as for prior. Attributes returns nil if each
	// Filter.Match returns the same for prior and next, the state that replaced it; next is
	// nil if prior was deleted. With Attributes, watchers that filter by content receive the
	// exact difference since a revision older than the window, or Expired; an object that left
	// the view and entered it again is Deleted and Added. Default: nothing is retained, and the
	// store does not know which objects matched before the window.
	Attributes func(prior, next keepwatch.Object) keepwatch.Object
	// AttributeBytes bounds the bytes of the objects that Attributes returned. The store
	// drops the oldest beyond it. Default 32 MiB.
	AttributeBytes int64
	// Records, if set, are the records of an earlier store of the same source. The first list is compared with
	// them, and not shown before. They are dropped if that list shows another history. A store takes no snapshot
	// from them: it has no state before its first list.
	Records *Records
	// Deleted returns the object that watchers receive of a deletion of which only the record is known: metadata.
	// Required with Records.
	Deleted func(Record) keepwatch.Object
	// Term returns the value of an object's attribute, for the terms of filters. It returns false if it cannot judge the
	// object. Default: terms are ignored.
	Term func(o keepwatch.Object, name string) (value string, known bool)
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
