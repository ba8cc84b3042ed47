// Package etcd reads one resource of a Kubernetes API server's storage directly from
// etcd: a [keepwatch.Source] for the keys below a prefix.
//
// A list is a range read in pages at one revision. [Source.Seed] reads the first state as one stream, if the
// member is of etcd 3.7 or later, and what the stream lacks in pages. A watch is one gRPC stream of its
// own, so that another resource's watch can neither delay it nor make it skip events
// (etcd #17529). Each list, and each watch when it is opened, is checked by a quorum
// read: the source distinguishes a member that lags behind from a cluster whose
// history went back in time.
//
// The package does not interpret values. [Options].Decode converts each value to an
// object, once for each write; see [Object] and [Undecodable].
//
// # What a source guarantees
//
//   - It never requests previous values: etcd reads them when it sends the event, when
//     they may be compacted already (etcd #10681). A Deleted change has the key alone;
//     the store has the previous state.
//   - A batch has whole revisions: a transaction is never split, whatever number of
//     messages contained it.
//   - [Object.Version] counts the writes of a key since its creation, so that a store
//     detects a missed event, unless the server does not count writes (kine).
//   - [Source.Newest] performs one quorum read for all waiting callers, and makes the
//     open watches reach that revision; see there for how to read consistently.
//   - If a restore from a backup replaced the history, lists and watches fail with
//     Rewound. This includes a history whose revision is already above the current one,
//     if it lacks the newest write that a source has seen; see [LastWrite].
//   - [Source.Seed] loads the oldest state that etcd can still show into an empty
//     target, and applies the history since, which several watches read in parallel.
//
// # Bounds
//
// A watch reads ahead by at most 1,000 changes or 1 MiB of values (one revision is
// always allowed). Then it stops reading: gRPC's window fills up (4 MiB with
// [DialOptions]), and etcd waits. The watches of a seed, at most four, read ahead by 16
// times as much each.
//
// A stream has chunks of about 1.5 MiB, of which gRPC's window has at most three. A page
// has about 32 MiB of values, estimated from the previous page. The client accepts messages
// up to 64 MiB. If a page exceeds that, it is requested again with fewer keys. After a page
// that fails for another reason, the next one has a quarter of the keys. A watch that
// receives a message that is too large fails with Undecodable once; the following watches
// request fragments.
//
// # Versions
//
// A progress notification of etcd before 3.4.25 and 3.5.8 may precede the events that
// it covers (etcd #15220). The target then refuses the event that follows, and the
// reflector lists; but a consistent read in between was not current. Use a newer etcd.
//
// # Files
//
//	source.go     Options, New, and the linearizable reads
//	key.go        storage keys and object keys
//	object.go     Object, Undecodable, decoding
//	list.go       List: pages, their size, continue tokens
//	rangestream.go  a state as one stream
//	revisions.go  the keys and revisions of a state, without values
//	quorum.go     Newest: quorum reads that callers share
//	unchanged.go  Unchanged: has the prefix changed while watches were silent?
//	watch.go      Watch: opening, receiving, closing; internal/readahead has the buffer
//	stream.go     one gRPC stream with one watch
//	revision.go   whole revisions from the messages of a stream
//	progress.go   progress requests, so that a watch without changes is current
//	lastwrite.go  detecting that the history was replaced
//	seed.go       Seed: an old state
//	history.go    the history since that state, by several watches
//	classify.go   the table from errors of etcd and gRPC to failure kinds
//	codec.go      decoding long messages without joining their frames
//	dial.go       client options for large pages
package etcd
