package memory

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// EndLease makes a lease due, and ends it.
func (db *DB) EndLease(id clientv3.LeaseID) {
	db.mu.Lock()
	due := db.leases.byID[id]
	due.end = time.Now()
	db.leases.byID[id] = due
	db.mu.Unlock()
	db.expire()
}
