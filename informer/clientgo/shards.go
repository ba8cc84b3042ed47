//go:build k8s_v0.38

package clientgo

import (
	"context"

	"k8s.io/client-go/tools/cache"
)

// client-go's interfaces have these methods from v0.38 on: build with -tags k8s_v0.38. This file imports nothing that
// an older version lacks: go mod tidy regards all tags, and would raise the version of everybody.

// newer has the method SetShardSelector(sharding.Selector), whose type cannot be named here: of the interface's methods
// Shared has all others itself.
type newer struct{ cache.SharedIndexInformer }

func (n *newer) of(s *Shared) { n.SharedIndexInformer = newSharded(s, cache.NewShardedListWatch) }

func newSharded[S any](s *Shared, restrict func(cache.ListerWatcher, S) cache.ListerWatcher) *sharded[S] {
	return &sharded[S]{s, restrict}
}

// sharded is a Shared with the method for its shard. S is sharding.Selector.
type sharded[S any] struct {
	*Shared
	restrict func(cache.ListerWatcher, S) cache.ListerWatcher
}

// SetShardSelector restricts the informer to a shard's objects. It fails once the informer was started. The
// ListerWatcher is then used also where [Direct] would read the server.
func (s *sharded[S]) SetShardSelector(selector S) error {
	return s.follower.Configure(func() { s.source.lw = s.restrict(s.lw, selector) })
}

// StartWithContext is Start for a context.
func (f *dynamicFactory) StartWithContext(ctx context.Context) { f.start(ctx) }

// WaitForCacheSyncWithContext is WaitForCacheSync for a context, whose cause is the result's error if an informer has
// not synced.
func (f *dynamicFactory) WaitForCacheSyncWithContext(ctx context.Context) cache.GVRSyncResult {
	result := cache.GVRSyncResult{Synced: f.WaitForCacheSync(ctx.Done())}
	for _, synced := range result.Synced {
		if !synced {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}
