// Package audit compares one resource on two servers, or on a server and in the state of a
// stream, at one revision: which objects are missing, extra or different. With it an operator
// shows that a proxy, a replica or a copy is equal to its source.
//
//	report, err := audit.Servers(ctx, server, against, audit.Options{Resource: pods})
//	if err != nil { … }       // not compared: the error says why
//	report.Equal()
//
// # What is compared
//
// [Servers] reads both states at exactly the same revision (resourceVersionMatch=Exact), the
// newest of the first server. Servers have the same revisions if they use one etcd, or if one
// is a proxy or a replica of the other. Every field counts, whatever the order of an object's
// members; numbers are compared as they are written. An object of a list may have apiVersion
// and kind, or lack them.
//
// [Options].ContentsOnly compares servers of different clusters, each at its own newest
// revision. It ignores what each cluster sets itself: metadata.resourceVersion, uid,
// managedFields, creationTimestamp, generation, and uid in ownerReferences.
//
// [State] compares a server with what the consumer of a stream has, at the cursor's revision.
// A state on disk has metadata only, without managedFields, so that only metadata are
// compared. Every change of an object changes its metadata.resourceVersion.
//
// # How
//
// Both states are read page by page and merged, in the order of keys. Of each object only its
// key and a digest of its canonical JSON remain in memory, for at most two pages of each
// state. Objects with different digests are read again, one by one at the same revision, for
// the paths of the fields that differ. Values are never part of a report.
//
// Requests that fail because of the connection, an overload or a revision that the server does not have yet
// are repeated. If a revision expires meanwhile, the comparison starts again at a newer one.
//
//	audit.go       Options; comparing servers, and a server with a state
//	report.go      the report
//	side.go        one of the two states, read ahead
//	server.go      the state of a server
//	index.go       the state of a stream
//	retry.go       which requests are repeated
//	merge.go       the comparison of two states in the order of keys
//	object.go      the digest of an object
//	content.go     the canonical JSON of an object
//	fields.go      the paths of the fields that differ
//	print.go       reports as a table, and as JSON
package audit
