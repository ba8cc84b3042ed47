package memory

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// The bounds of the history, of all resources together. kube-apiserver compacts etcd at this age.
const (
	historyBytes = 64 << 20
	historyAge   = 5 * time.Minute
)

// firstRevision is the revision of an empty database, as in etcd.
const firstRevision keepwatch.Revision = 1

// DB has the objects of all resources of one API server. It is safe for concurrent use. Readers never wait
// for writers. Close frees its timer.
type DB struct {
	state *store.Store // the objects of all resources: the namespace is the bucket, the name the key below it
	// compacted is the oldest revision that can still be read, or zero if Compact was never called. The
	// bounds of the state may be newer.
	compacted atomic.Uint64

	mu     sync.Mutex // of writes, and of the fields below
	leases leases
	oldest *store.Snapshot // the state at the oldest revision of the history, if a seed has asked for it
}

// New returns an empty database, whose revision is 1.
func New() *DB {
	state := store.New(historyOptions())
	db := newDB(state, leases{byID: map[clientv3.LeaseID]lease{}})
	must(state.AddIndexes(map[string]store.IndexFunc{leaseIndex: leaseOf}))
	list, err := state.Replace(context.Background(), keepwatch.Relist{To: firstRevision})
	must(err)
	must(list.Commit(context.Background(), firstRevision))
	return db
}

func newDB(state *store.Store, l leases) *DB {
	db := &DB{state: state, leases: l}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.scheduleExpiry()
	return db
}

// historyOptions bound the history. Tombstones are not needed: what is behind the window is compacted.
func historyOptions() store.Options {
	return store.Options{WindowBytes: historyBytes, WindowAge: historyAge, Tombstones: 1, TombstoneBytes: 1, Size: sizeOf}
}

// must panics for an error that no caller can cause.
func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("memory: an invariant does not hold: %v", err))
	}
}

// Close stops the timer of the leases: their keys are no longer deleted. The database can still be read,
// written and forked.
func (db *DB) Close() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.leases.stop()
}

// Revision returns the newest revision.
func (db *DB) Revision() keepwatch.Revision { return db.state.Snapshot().Revision() }

// Fork returns a database with the same objects, leases and revision, and no history before it. It takes
// constant time. Neither database sees what is written to the other later.
func (db *DB) Fork() *DB {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.at(db.state.Snapshot(), maps.Clone(db.leases.byID))
}

// At returns a database as this one was at a revision, without history before it: a restored backup. The
// leases of its keys begin anew. At fails with etcd's errors for a revision that is compacted, or still to
// come.
func (db *DB) At(revision keepwatch.Revision) (*DB, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	then, err := db.snapshotAt(revision)
	if err != nil {
		return nil, err
	}
	return db.at(then, db.leases.renewed()), nil
}

// at returns a database that begins with a snapshot and leases. The caller holds db.mu.
func (db *DB) at(s *store.Snapshot, byID map[clientv3.LeaseID]lease) *DB {
	return newDB(store.NewAt(s, historyOptions()), leases{byID: byID, last: db.leases.last})
}

// Compact drops the history before a revision: reads and watches from an older one fail. It fails with
// etcd's errors for a revision that is compacted, or still to come.
func (db *DB) Compact(revision keepwatch.Revision) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case revision <= db.Compacted():
		return rpctypes.ErrCompacted
	case revision > db.Revision():
		return rpctypes.ErrFutureRev
	}
	db.compacted.Store(uint64(revision))
	db.oldest = nil
	return nil
}

// Compacted returns the oldest revision that can still be read, or zero if the history is complete.
func (db *DB) Compacted() keepwatch.Revision {
	history, _ := db.state.Bounds()
	if history <= firstRevision {
		history = 0
	}
	return max(history, keepwatch.Revision(db.compacted.Load()))
}

// CompactRevision returns Compacted, for k8s.io/apiserver's etcd3 storage.
func (db *DB) CompactRevision() int64 { return int64(db.Compacted()) }

// snapshotAt returns the state at a revision, the newest one for zero.
func (db *DB) snapshotAt(revision keepwatch.Revision) (*store.Snapshot, error) {
	now := db.state.Snapshot()
	switch {
	case revision == 0 || revision == now.Revision():
		return now, nil
	case revision > now.Revision():
		return nil, rpctypes.ErrFutureRev
	case revision < db.Compacted():
		return nil, rpctypes.ErrCompacted
	}
	then, err := db.state.At(revision)
	if err != nil {
		return nil, rpctypes.ErrCompacted // the window has moved on
	}
	return then, nil
}

// oldestSnapshot returns the oldest state of the history, at most back revisions before the newest one. All
// sources of a start ask for the same one.
func (db *DB) oldestSnapshot(back keepwatch.Revision) (*store.Snapshot, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	now := db.state.Snapshot()
	revision := max(db.Compacted(), firstRevision)
	if now.Revision() > back {
		revision = max(revision, now.Revision()-back)
	}
	if db.oldest != nil && db.oldest.Revision() == revision {
		return db.oldest, nil
	}
	then, err := db.snapshotAt(revision)
	if err == nil {
		db.oldest = then
	}
	return then, err
}

// bucket identifies one resource's keys in the tree. Invariant: it has no slash.
type bucket string

// bucketOf returns the bucket of a prefix like "/registry/pods/".
func bucketOf(prefix string) bucket {
	return bucket(strings.ReplaceAll(strings.Trim(prefix, "/"), "/", "\x00"))
}

func (b bucket) key(name string) keepwatch.Key {
	return keepwatch.Key{Namespace: string(b), Name: name}
}

// recordIn returns the record of a name in a snapshot, nil if there is none.
func (b bucket) recordIn(s *store.Snapshot, name string) *record {
	o, ok := s.Get(b.key(name))
	if !ok {
		return nil
	}
	return o.(*record)
}

// from calls yield with the records of a snapshot from a name on, in order, until it returns false.
func (b bucket) from(s *store.Snapshot, name string, yield func(*record) bool) {
	for o := range s.From(b.key(name)) {
		if r := o.(*record); r.bucket != b || !yield(r) {
			return
		}
	}
}

// put writes a value if the key was last written at a revision, zero if it must not exist. It returns the
// record that prevented that, and the newest revision. The value belongs to the database.
func (db *DB) put(b bucket, name string, value []byte, expected int64,
	lease clientv3.LeaseID) (done bool, current *record, revision keepwatch.Revision, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	now := db.state.Snapshot()
	current, revision = b.recordIn(now, name), now.Revision()
	if current.modRevision() != expected {
		return false, current, revision, nil
	}
	if known, ok := db.leases.byID[lease]; lease != clientv3.NoLease && (!ok || known.ended) {
		return false, nil, revision, rpctypes.ErrLeaseNotFound
	}
	revision++
	change := keepwatch.Change{Type: keepwatch.Modified, Revision: revision, Object: current.next(b, name, value, lease,
		revision)}
	if current == nil {
		change.Type = keepwatch.Added
	}
	return true, nil, revision, db.commit(now, change)
}

// delete deletes a key if it was last written at a revision. It returns as put does.
func (db *DB) delete(b bucket, name string,
	expected int64) (done bool, current *record, revision keepwatch.Revision, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	now := db.state.Snapshot()
	current, revision = b.recordIn(now, name), now.Revision()
	switch {
	case current.modRevision() != expected:
		return false, current, revision, nil
	case current == nil:
		return true, nil, revision, nil // it must not exist, and does not
	}
	revision++
	return true, nil, revision, db.commit(now, keepwatch.Change{Type: keepwatch.Deleted, Revision: revision,
		Object: current})
}

// commit writes changes at the revision after a snapshot, which is the newest. The caller holds db.mu.
func (db *DB) commit(now *store.Snapshot, changes ...keepwatch.Change) error {
	_, err := db.state.Apply(context.Background(), keepwatch.Batch{From: now.Revision(), To: now.Revision() + 1,
		Changes: changes})
	if db.oldest != nil && db.oldest.Revision() < db.Compacted() {
		db.oldest = nil // it would keep the objects alive that were replaced since
	}
	return err
}
