package memory

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Value is a key of a database that is restored.
type Value struct {
	Prefix   string // of the resource's keys, as for DB.Client: "/registry/pods/"
	Name     string // the key below it
	Revision keepwatch.Revision
	Value    []byte // belongs to the database
	// TTL is how long the key stays if it is not written again, as with a lease, in whole seconds. 0 is for ever.
	TTL time.Duration
}

// Restore returns a database that begins with values at a revision, which is not below theirs, and has no history
// before it. Each key counts as written once, at its revision. Those with one TTL share a lease. Close ends its timer.
func Restore(revision keepwatch.Revision, values []Value) (*DB, error) {
	state := store.New(historyOptions())
	must(state.AddIndexes(map[string]store.IndexFunc{leaseIndex: leaseOf}))
	ctx := context.Background()
	list, err := state.Replace(ctx, keepwatch.Relist{To: max(revision, firstRevision)})
	if err != nil {
		return nil, err
	}
	granted, now := leases{byID: map[clientv3.LeaseID]lease{}}, time.Now()
	byTTL := map[time.Duration]clientv3.LeaseID{0: clientv3.NoLease}
	for _, v := range values {
		id, ok := byTTL[v.TTL]
		if !ok {
			granted.last++
			id = granted.last
			byTTL[v.TTL], granted.byID[id] = id, lease{ttl: v.TTL, end: now.Add(v.TTL)}
		}
		r := (*record)(nil).next(bucketOf(v.Prefix), "/"+v.Name, v.Value, id, v.Revision)
		if err := list.Put(ctx, []keepwatch.Object{r}); err != nil {
			list.Discard()
			return nil, err
		}
	}
	if err := list.Commit(ctx, max(revision, firstRevision)); err != nil {
		return nil, err
	}
	return newDB(state, granted), nil
}
