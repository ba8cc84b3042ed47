package watchcache

import (
	"context"

	"github.com/keepwatch/keepwatch"
)

// Source is what a watch cache reads. Its List and Watch return objects that [Cache.NewObject]
// made of theirs, and the end of an object as the source has it.
type Source interface {
	keepwatch.Source
	// Newest returns the newest committed revision, by a read that began after the call. This
	// contract replaces that of keepwatch.Source.Newest: any goroutine may call it. Newest also
	// makes the open Watch of the source deliver up to that revision without delay, even if
	// nothing of the resource has changed. Errors are *keepwatch.Failure.
	Newest(ctx context.Context) (keepwatch.Revision, error)
	// Seed fills target, which is empty, with an older state and the history since. Clients then
	// resume from revisions before the start. If Seed fails, target is empty and the cache
	// begins with a list.
	Seed(ctx context.Context, target keepwatch.Target) error
}

// Ender is a [Source] that says why a watch cannot go on behind a gap, and what its client can do: the source went
// back, or a list has shown another content at a revision that was delivered. It is called once a list has ended the
// gap, by any goroutine.
type Ender interface {
	End(gap keepwatch.Gap) error
}

// lost returns the API's error for a watch that cannot go on behind a gap.
func (c *Cache) lost(gap keepwatch.Gap) error {
	if ender, ok := c.source.(Ender); ok {
		return ender.End(gap)
	}
	return errTooOld
}
