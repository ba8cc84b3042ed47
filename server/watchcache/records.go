package watchcache

import (
	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// RecordsSince returns what a later cache needs, so that watches resume at it from revisions of this one; see
// [store.Store.RecordsSince] and [Config].Store.Records.
func (c *Cache) RecordsSince(seen *store.Snapshot) (delta store.RecordsDelta, now *store.Snapshot,
	newer <-chan struct{}) {
	return c.store.RecordsSince(seen)
}

// CanResume reports whether a watch can resume from a revision: one with a selector, if selective is true.
func (c *Cache) CanResume(from keepwatch.Revision, selective bool) bool {
	filter := store.Filter{}
	if selective {
		filter.Match = func(keepwatch.Object) bool { return true }
	}
	return c.store.CanResume(from, filter)
}

// deleted returns the object of a deletion of which only the record is known.
func (c *Cache) deleted(r store.Record) keepwatch.Object {
	o, value := c.config.Deleted(r)
	return c.NewObject(o, value)
}
