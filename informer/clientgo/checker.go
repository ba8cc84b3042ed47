//go:build !k8s_v0.35

package clientgo

import "k8s.io/client-go/tools/cache"

// client-go's interfaces have these methods from v0.36 on. With an older client-go, which this file does not compile
// with, build with -tags k8s_v0.35.

// HasSyncedChecker returns a checker that is done once HasSynced is true.
func (s *Shared) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{s.checkerName(), s.follower.Synced()}
}

// HasSyncedChecker returns a checker that is done once HasSynced is true.
func (r *registration) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{r.name, r.handler.Synced()}
}

type doneChecker struct {
	name string
	done <-chan struct{}
}

func (d doneChecker) Name() string          { return d.name }
func (d doneChecker) Done() <-chan struct{} { return d.done }
