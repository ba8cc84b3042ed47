package garbage

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// knowsDependents reports whether the graph has what was written before an owner's deletion was read: a dependent of
// another resource that was created just before it may not be known yet. It would not delay the owner's deletion in
// the foreground, and it would be deleted with an owner that is deleted with Orphan. An owner whose dependents are not
// known is put aside, and handled again when they are.
func (c *Collector) knowsDependents(owner *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waited > owner.read {
		return true
	}
	if _, waits := c.aside[owner.uid]; !waits { // otherwise a wait is to begin, or under way, or to be repeated
		c.aside[owner.uid] = struct{}{}
		c.awaiting.Add(struct{}{})
	}
	return false
}

// awaitDependents waits until the graph has what was written before the call, and has the owners that were put aside
// handled again. One wait is for all whose deletions were read before it; others are put aside again. After an error
// they wait for the next one.
func (c *Collector) awaitDependents(ctx context.Context, _ struct{}) error {
	if !c.isAwaited() {
		return nil
	}
	wait := c.waits.Add(1)
	if err := c.sources.awaitNewest(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waited = wait
	for uid := range c.aside {
		c.worker.Add(uid)
	}
	clear(c.aside)
	return nil
}

// isAwaited reports whether owners are put aside. It forgets those that are gone.
func (c *Collector) isAwaited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.aside, func(uid types.UID, _ struct{}) bool { return c.graph.get(uid) == nil })
	return len(c.aside) > 0
}

// reportAwaiting reports an error of a wait.
func (c *Collector) reportAwaiting(ctx context.Context, _ struct{}, err error) {
	utilruntime.HandleErrorWithContext(ctx, err, "Owners that are deleted in the foreground or with Orphan wait: not all "+
		"dependents are known")
}
