package watchcache

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// watchStart is where a watch begins: with the objects of a state, or after a cursor.
type watchStart struct {
	state    *store.Snapshot // nil if the watch has no initial events
	bookmark bool            // a bookmark marks the end of the initial events
	cursor   store.Cursor
}

// watchStart returns where a watch begins.
func (c *Cache) watchStart(ctx context.Context, revision keepwatch.Revision,
	options apistorage.ListOptions) (watchStart, error) {
	if initial := options.SendInitialEvents; initial == nil && revision == 0 {
		return startAt(c.store.Snapshot(), false), nil
	} else if initial != nil && *initial {
		snapshot, err := c.initialState(ctx, revision, options.ResourceVersion)
		if err != nil {
			return watchStart{}, err
		}
		return startAt(snapshot, options.Predicate.AllowWatchBookmarks), nil
	}
	now := c.store.Snapshot().Cursor()
	switch {
	case revision > 0:
		if err := c.rejectUnknown(ctx, revision); err != nil {
			if apierrors.IsResourceExpired(err) {
				c.meter.resumed(expired)
			}
			return watchStart{}, err
		}
		now.Revision = revision
	case options.ResourceVersion == "":
		newest, err := c.source.Newest(ctx)
		if err != nil {
			return watchStart{}, err
		}
		now.Revision = max(newest, now.Revision)
	}
	return watchStart{cursor: now}, nil
}

// rejectUnknown returns Expired for a revision that no watch can begin from.
func (c *Cache) rejectUnknown(ctx context.Context, revision keepwatch.Revision) error {
	if c.dropped(revision) {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", revision, c.floor.Load()))
	}
	return c.rejectFuture(ctx, revision)
}

// initialState returns the state of the initial events: the newest one if the request names no
// revision.
func (c *Cache) initialState(ctx context.Context, revision keepwatch.Revision, named string) (*store.Snapshot, error) {
	if named == "" {
		return c.newest(ctx)
	}
	if err := c.rejectFuture(ctx, revision); err != nil {
		return nil, err
	}
	return c.notOlderThan(ctx, revision)
}

func startAt(state *store.Snapshot, bookmark bool) watchStart {
	return watchStart{state, bookmark, state.Cursor()}
}
