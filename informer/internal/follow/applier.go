package follow

import (
	"context"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/informer/internal/item"
	"github.com/keepwatch/keepwatch/store"
)

// applier is the reflector's target. It calls the transform once for each new state of an
// object and applies the result to the store. A state that the transform or the expected
// type rejects is applied without its value, so that no earlier state of the object stays.
type applier struct {
	store     *store.Store
	expect    expectation
	transform func(any) (any, error) // nil for none
	seed      maphash.Seed           // of the hashes of untransformed values
	// dropManaged removes managedFields first, from objects that were read with them.
	dropManaged bool
	accepted    func(any)             // is called with each accepted value, if not nil
	listed      func(*store.Snapshot) // is called once, with the first list

	// publishing is held while the store changes, until lookup and current have the change.
	publishing      sync.RWMutex
	lookup          lookup
	current         atomic.Pointer[store.Snapshot] // nil before the first list
	repairRequested atomic.Bool                    // Repair was called: the next batch must be replaced by a list
}

// publish changes the store, and then lookup and current.
func (a *applier) publish(change func() error) error {
	a.publishing.Lock()
	defer a.publishing.Unlock()
	before := a.store.Snapshot()
	if err := change(); err != nil {
		return err
	}
	now := a.store.Snapshot()
	publish := func() { a.current.Store(now) }
	if before.Revision() == 0 {
		a.lookup.fill(now, publish)
	} else {
		changes, _, _ := a.store.Since(before, math.MaxInt)
		a.lookup.apply(changes, publish)
	}
	return nil
}

// refresh updates current after a change of the store's indexes.
func (a *applier) refresh() {
	a.publishing.Lock()
	defer a.publishing.Unlock()
	if a.current.Load() != nil {
		a.current.Store(a.store.Snapshot())
	}
}

// waitPublished waits until lookup and current have everything that the store has.
func (a *applier) waitPublished() {
	a.publishing.RLock()
	defer a.publishing.RUnlock()
}

func (a *applier) Revision() keepwatch.Revision { return a.store.Revision() }

// Invalidate invalidates the store; see keepwatch.Target.
func (a *applier) Invalidate(ctx context.Context, reason keepwatch.GapReason) error {
	return a.store.Invalidate(ctx, reason)
}

// Apply applies a batch; see keepwatch.Target.
func (a *applier) Apply(ctx context.Context, batch keepwatch.Batch) (dropped int, err error) {
	if a.repairRequested.Swap(false) {
		return 0, keepwatch.Failed(keepwatch.ProtocolViolation, "a repair was requested")
	}
	current := a.store.Snapshot()
	accepted := make([]keepwatch.Change, len(batch.Changes))
	for i, c := range batch.Changes {
		if before, ok := current.Get(c.Object.Key()); ok && c.Revision <= before.Revision() {
			if c.Type == keepwatch.Deleted && c.Object.UID() == before.UID() {
				return 0, keepwatch.Failed(keepwatch.ProtocolViolation,
					"%s was deleted at %d, but exists at %d", before.Key(), c.Revision, before.Revision())
			}
			accepted[i] = c
			continue
		}
		c.Object = a.accept(a.summed(c.Object.(*item.Item)))
		accepted[i] = c
	}
	batch.Changes = accepted
	err = a.publish(func() error {
		dropped, err = a.store.Apply(ctx, batch)
		return err
	})
	return dropped, err
}

// Replace begins to replace the state by a list; see keepwatch.Target.
func (a *applier) Replace(ctx context.Context, relist keepwatch.Relist) (keepwatch.Replacement, error) {
	replacement, err := a.store.Replace(ctx, relist)
	if err != nil {
		return nil, err
	}
	return &applierList{Replacement: replacement, applier: a, base: a.store.Snapshot()}, nil
}

// applierList receives a list.
type applierList struct {
	keepwatch.Replacement
	applier *applier
	base    *store.Snapshot
}

// Put accepts the objects that the store does not have. The store compares the values of those that
// have an equal revision: their definition may have changed.
func (l *applierList) Put(ctx context.Context, objects []keepwatch.Object) error {
	for i, o := range objects {
		current, ok := l.base.Get(o.Key())
		if listed := l.applier.summed(o.(*item.Item)); ok && listed.IsStateOf(current.(*item.Item)) {
			objects[i] = current
		} else {
			objects[i] = l.applier.accept(listed)
		}
	}
	return l.Replacement.Put(ctx, objects)
}

func (l *applierList) Commit(ctx context.Context, to keepwatch.Revision) error {
	first := l.base.Revision() == 0
	if err := l.applier.publish(func() error { return l.Replacement.Commit(ctx, to) }); err != nil {
		return err
	}
	if first {
		l.applier.listed(l.applier.store.Snapshot())
	}
	return nil
}

// accept returns the object with the value that handlers receive, or without a value.
func (a *applier) accept(o *item.Item) *item.Item {
	if o.Err() != nil {
		return o // it could not be decoded
	}
	if !o.Packed() { // the decoder of packed objects did all this
		if err := a.expect.check(o.Value()); err != nil {
			return o.Rejected(err)
		}
		if about, err := meta.Accessor(o.Value()); a.dropManaged && err == nil {
			about.SetManagedFields(nil)
		}
	}
	if a.transform != nil {
		o = a.transformed(o)
	}
	o = o.Measured()
	if a.accepted != nil && !o.Packed() && o.Err() == nil {
		a.accepted(o.Value())
	}
	return o
}
