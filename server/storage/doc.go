// Package storage implements k8s.io/apiserver's storage.Interface over a watch cache that follows etcd or
// a database in memory.
//
//	etcd ──▶ source/etcd ──▶ watchcache ──▶ Get, GetList, Watch
//	  ▲
//	  └── k8s.io/apiserver's etcd3 ◀── Create, GuaranteedUpdate, Delete
//
// A database in memory (source/memory) can take etcd's place on both ways: [Config].Memory.
//
// One line makes an aggregated API server use it:
//
//	options.Decorator = storage.Decorator(storage.NewMetrics(registry))
//
// # Reads
//
// The watch cache answers Get, GetList and Watch; see package watchcache. A consistent read asks
// etcd for its newest revision, by a quorum read, and makes etcd report progress until the cache
// has reached it. If the cache can't answer, because a revision is older than its history, an
// object can't be decoded, or it does not become current in time, the storage falls back to etcd3.
//
// Each object of a watch's events is usually decoded once for all watches, and encoded once for those that are open
// when the event happens.
//
// Every five minutes or more, as k8s.io/apiserver does, the storage compares the keys and revisions in its cache with
// those of etcd. It counts the result in apiserver_storage_consistency_checks_total. After a difference, the cache
// lists again.
//
// # Writes
//
// Writes are etcd3's: preconditions, conflicts, leases and encryption are the same as in
// kube-apiserver. The cached object is the first guess at the current one, which saves a read; etcd3 checks
// it.
//
// # Files
//
//	storage.go       Storage, Run, Start       config.go        how it is configured
//	get.go, list.go  reads, etcd3's if need be source.go        etcd or memory as a watch cache reads it
//	watch.go         a watch to a channel      sharedobject.go  an event's object, for all watches
//	write.go         writes, and statistics    unavailable.go   errors while etcd is unavailable
//	decorator.go     for API servers           metrics.go       counters
//	consistency.go   compares cache and etcd
package storage
