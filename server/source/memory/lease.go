package memory

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
)

// leaseIndex finds the keys of a lease. It is part of the immutable state: a lease has no list of keys.
const leaseIndex = "lease"

// maxTTL is the longest time of a lease in seconds, as in etcd.
const maxTTL = 9_000_000_000

// leaseOf returns the values of a record in leaseIndex.
func leaseOf(o keepwatch.Object) []string {
	if r := o.(*record); r.lease != clientv3.NoLease {
		return []string{leaseValue(r.lease)}
	}
	return nil
}

func leaseValue(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 10) }

// leases are the leases of a database, whose mutex guards them.
type leases struct {
	byID    map[clientv3.LeaseID]lease
	last    clientv3.LeaseID
	timer   *time.Timer // of the earliest end; nil if there is none
	stopped bool
}

// lease is never changed. An ended one stays for as long as the history may have its keys.
type lease struct {
	ttl   time.Duration
	end   time.Time
	ended bool
}

// renewed returns the leases with their whole time, also those that have ended: etcd does that after a
// restore.
func (l *leases) renewed() map[clientv3.LeaseID]lease {
	renewed := map[clientv3.LeaseID]lease{}
	for id, known := range l.byID {
		renewed[id] = lease{ttl: known.ttl, end: time.Now().Add(known.ttl)}
	}
	return renewed
}

func (l *leases) stop() {
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// grant makes a lease.
func (db *DB) grant(ttl int64) (clientv3.LeaseID, error) {
	if ttl <= 0 || ttl > maxTTL {
		return 0, rpctypes.ErrLeaseTTLTooLarge
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.leases.last++
	whole := time.Duration(ttl) * time.Second
	db.leases.byID[db.leases.last] = lease{ttl: whole, end: time.Now().Add(whole)}
	db.scheduleExpiry()
	return db.leases.last, nil
}

// scheduleExpiry sets the timer to the earliest end of a lease. The caller holds db.mu.
func (db *DB) scheduleExpiry() {
	l := &db.leases
	if l.timer != nil {
		l.timer.Stop()
	}
	var earliest time.Time
	for _, known := range l.byID {
		if !known.ended && (earliest.IsZero() || known.end.Before(earliest)) {
			earliest = known.end
		}
	}
	if !l.stopped && !earliest.IsZero() {
		l.timer = time.AfterFunc(time.Until(earliest), db.expire)
	}
}

// expire ends the leases that are due. The keys of a lease are deleted at one revision.
func (db *DB) expire() {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.leases.stopped {
		return
	}
	now := time.Now()
	for id, known := range db.leases.byID {
		switch {
		case known.ended && now.Sub(known.end) > historyAge:
			delete(db.leases.byID, id)
		case !known.ended && !known.end.After(now):
			known.ended = true
			db.leases.byID[id] = known
			must(db.deleteKeysOf(id))
		}
	}
	db.scheduleExpiry()
}

func (db *DB) deleteKeysOf(id clientv3.LeaseID) error {
	now := db.state.Snapshot()
	index, _ := now.Index(leaseIndex)
	var changes []keepwatch.Change
	for key := range index.Keys(leaseValue(id)) {
		o, _ := now.Get(key)
		changes = append(changes, keepwatch.Change{Type: keepwatch.Deleted, Revision: now.Revision() + 1, Object: o})
	}
	if len(changes) == 0 {
		return nil
	}
	return db.commit(now, changes...)
}

// lessor is etcd's API of leases, as far as k8s.io/apiserver's storage uses it.
type lessor struct{ db *DB }

func (l lessor) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, err := l.db.grant(ttl)
	if err != nil {
		return nil, err
	}
	return &clientv3.LeaseGrantResponse{ResponseHeader: &pb.ResponseHeader{Revision: int64(l.db.Revision())}, ID: id,
		TTL: ttl}, nil
}

func (lessor) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return nil, errors.ErrUnsupported
}

func (lessor) TimeToLive(context.Context, clientv3.LeaseID,
	...clientv3.LeaseOption) (*clientv3.LeaseTimeToLiveResponse, error) {
	return nil, errors.ErrUnsupported
}

func (lessor) Leases(context.Context) (*clientv3.LeaseLeasesResponse, error) {
	return nil, errors.ErrUnsupported
}

func (lessor) KeepAlive(context.Context, clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	return nil, errors.ErrUnsupported
}

func (lessor) KeepAliveOnce(context.Context, clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	return nil, errors.ErrUnsupported
}

func (lessor) Close() error { return nil }
