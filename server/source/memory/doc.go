// Package memory keeps the objects of a Kubernetes API server in memory, with etcd's data model: one line of
// revisions for all resources, writes by compare and swap, history, leases.
//
//	k8s.io/apiserver's etcd3 ── kubernetes.Client ──▶ DB ──▶ Source ──▶ watchcache
//
// k8s.io/apiserver's own etcd3 storage writes: [DB.Client] is a client of etcd for it. So preconditions,
// conflicts, encryption and the guess at the current object are the same code as with etcd. A [Source]
// reads one resource for a watch cache, without encoding messages and without goroutines.
//
// The state of a DB is an immutable tree ([store.Store]): [DB.Fork] shares it, and costs the same for any
// number of objects.
//
// # What differs from etcd
//
// Nothing outlives the process. The size of a write is bounded, as in etcd; the space of all objects is not. The
// history is bounded by age and by bytes. A lease ends when it is due; etcd adds up to a second, and extends the
// shortest leases. [DB.Client] has the methods that k8s.io/apiserver's storage calls. The others fail with
// [errors.ErrUnsupported].
//
// # Files
//
//	db.go       DB: reading a state, writing, Fork, At, Compact
//	record.go   one state of one key, and the same as an object of its resource
//	lease.go    leases, whose keys are deleted when they end
//	client.go   the client for k8s.io/apiserver's etcd3 storage
//	restore.go  a database that begins with given keys
//	size.go     the bounds of a write
//	kv.go       the part of etcd's general API that this storage uses
//	source.go   Source: lists, and the first state with its history
//	watch.go    a watch of a Source
package memory
