// Package watchcache answers get, list and watch of one resource from memory, like kube-apiserver's
// watch cache. Its source is any [Source], and its history is exact.
//
//	Source ─▶ reflector ─▶ store ─┬─▶ Get, List: encoded objects and snapshots ─▶ readpath: HTTP
//	  ▲                           └─▶ Watch: events, initial state, bookmarks  ─▶ storage: k8s.io/apiserver
//	  └── Newest: which revision is the newest committed one? ◀── consistent reads
//
// [Source] extends keepwatch.Source: Newest also makes the open watch reach that revision, and Seed
// loads older history. A cache depends on neither etcd nor HTTP, and has no writes.
//
// # Reads
//
// The Kubernetes API defines which state resourceVersion and its match ask for. A consistent read
// asks the source for its newest revision, with one read for all that wait for one, and then waits
// until the cache has reached it. A list at a past revision is exact, as far as the history of the
// store reaches. If only the source can answer, a read fails with [ErrNotCached].
//
//	ListRequest ─▶ state ─▶ ListResult
//	(keys, state, selectors)  (which snapshot, waiting if it must)  (page, matches, continue token)
//
// A shard selector (KEP-5866) selects objects by the hash of their UID or namespace. A cache needs nothing
// of its source for that: it also answers when the server behind the source does not know shard selectors.
// It ignores them while the process has the feature gate ShardedListAndWatch off, unless [Config].Sharded is set. Each
// UID is hashed once; a list of a shard reads the hashes of a segment of the store in a row, and only its own objects.
//
// A list with a selector scans its scope. Labels and fields that lists require by equality again and again get an
// index, until no list uses it; their number and bytes are bounded, and metrics count them.
//
// # Watches
//
// A watch is a cursor over the store. Nothing is queued for it, and a slow watch continues within the
// history's bounds. A watch from a revision older than the history receives the difference since
// then, in an order in which it can stop after any event and resume from there, also at another server:
// deletions that only a list revealed come first, at the watch's revision. For watches with
// selectors, the store has the metadata of replaced states that left the history, if labels or
// fields changed: an object that left the selection is DELETED, with that metadata, and ADDED if it
// came back. A watch from a revision older than the tombstones receives 410 Expired, and so does a
// watch with selectors from a revision older than that metadata (store.Options).
//
// A client may watch from a revision that the source has not committed. If a read made after the
// request shows that the revision is not committed yet, the watch ends with 410 Expired: the source
// was restored from a backup, and the watch would wait permanently (kubernetes #107457).
//
// A watch of a [View] has the objects of some namespaces. When another set of them takes the place of the present one,
// the watch continues at its revision: with the deletions of what it has delivered of a namespace that is revoked, and
// with the objects of one that is granted, behind which a bookmark follows. The revisions of these objects are old, so
// a client may resume from one of them; the view says which revisions belong to the present set, or to that of the
// lists, with whose difference the watch then begins, and a watch from any other one receives 410 Expired.
//
// [Watch.Serve] is the loop of every watch: it sends events, the initial state and bookmarks to a
// [Receiver].
//
// # Objects
//
// An object is usually decoded once: conversion, defaults and decryption are applied, and labels, fields
// and index values extracted. The cache decodes changes as they arrive. It does not decode what the
// source has at the start until an object is read, or until some seconds later, with a quarter of a
// processor: clients that resume from their revisions need none of it. After that the cache stores
// the encoding that is served, in a third of the memory of a Go value or less: protobuf for Go
// types that have it, JSON for custom resources. Of Go types that are internal to a server it stores the
// protobuf of one served version ([Config].Served); without one, they stay in the source's encoding, and the
// codec decodes them each time.
//
// A proxy's objects are served as the source has them ([Verbatim]): its source is a Kubernetes API, whose
// fields need not be known here.
//
// A stored object contains its resourceVersion, which the source's bytes lack. Inserting it into the
// source's protobuf for each response takes 1.3 times the CPU of a LIST, and is exact only while no default
// applies. A copy in readpath's budget takes 6.2 KB of memory a pod of 9 KB JSON (125 MB for 20,000).
//
// An object that can't be decrypted or decoded has its place in the history. Each reader tries
// again, since the reason may have been an unavailable key server. If it fails again, a read
// returns ErrNotCached, and a watch ends at that event with an error. No later event overtakes it.
// [Cache.Unreadable] returns the objects of a list that are known to be such.
// A selector needs decoded labels. A list or watch with a selector fails if it meets an undecodable
// object; its error does not name the object. Until decoding succeeds, every index lookup returns it.
//
// # Files
//
//	cache.go         Cache, Run, readiness              source.go       what it reads from
//	family.go        what caches share that begin with each other's objects: At, Still
//	config.go        the description of a resource     start.go        catching up, decoding after the start
//	list.go          a list, in three steps:            wait.go         waiting for a revision, rejecting others
//	listrequest.go     which keys, state, selectors     get.go          one object
//	state.go           which snapshot                   event.go        what a watch delivers
//	listresult.go      pages and matches of it          serve.go        the loop of a watch, Receiver
//	watch.go         events from deliveries of a store  unavailable.go  errors while the source is unavailable
//	watchstart.go    where a watch begins               metrics.go      counters, the watch cache's names
//	scope.go         keys of a request                  index.go        objects by value
//	term.go          an equality that a selector requires
//	termindex.go     objects by such a value, if lists require it again and again
//	object.go        one state of an object             encoding.go     its bytes
//	decode.go        decodes it                         version.go      the served version of internal types
//	predicate.go     what a request selects             filter.go       selectors as a filter of the store
//	shard.go         its shard
//	attributes.go    labels and fields in little space  slim.go         an object after its deletion
//	attachment.go    a reader's encodings of an object  progress.go     state, counts, size
//	records.go       what the next process needs        unreadable.go   objects that readers could not read
//	pace.go          a source that waits for a watch
//	view.go          some namespaces, which change while a watch is open
//	metadata.go      changes of all objects as metadata, without decoding them
package watchcache
