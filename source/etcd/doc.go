// Package etcd reads one resource of a Kubernetes API server's storage straight
// from etcd: a [keepwatch.Source] over the keys below a prefix.
//
// A list is a range read in pages at one revision; a watch is one gRPC stream of
// its own, so that what happens to another resource's watch can't hold it up or
// make it skip (etcd #17529). Every list, and every watch at its opening, is
// checked by a quorum read, so that a member that lags behind is told from a
// cluster that went back in time.
//
// The values are bytes to this package. [Options].Decode makes objects of them,
// once for each write; see [Object] and [Undecodable].
//
// # What a source of this package does for those above it
//
//   - It never asks for previous values: etcd reads them when it sends the event,
//     and by then they may be compacted away (etcd #10681). A Deleted carries the
//     key alone; the store knows the rest.
//   - A batch has whole revisions: a transaction is never split, however many
//     messages it came in.
//   - [Object.Version] counts the writes of a key's life, so that a store notices an
//     event that was missed, unless the server does not count (kine).
//   - [Source.Newest] is one quorum read for all who wait for it, and makes an open
//     watch tell how far it has come; see there for how to read consistently.
//   - A history that was replaced, by a restore from a backup, is Rewound: also where it has
//     overtaken the revision that is held, if it lacks the newest write seen; see [Past].
//   - [Source.Seed] fills an empty target with the oldest state that etcd can still
//     show, and the history since, which several watches read at once.
//
// # Bounds
//
// A watch reads ahead by at most 1,000 changes or 1 MiB of values (one revision is
// always allowed) and then stops reading, whereupon gRPC's window fills up (4 MiB with
// [DialOptions]) and etcd waits. The up to four watches of a seed read ahead by 16 times
// as much each. A page has about 32 MiB of values, by the sizes of the page before. One
// message may have 64 MiB, and etcd sends no more than 2 GiB: a page that is larger is asked
// for again with as many keys as fit. A page that fails for another reason has a quarter of the
// keys next time. A watch that meets a message that is too long is Undecodable once, and gets
// fragments from then on.
//
// # Versions
//
// A progress notification of etcd before 3.4.25 and 3.5.8 may come ahead of the
// events it covers (etcd #15220). If it does, the event behind it is refused by the
// target and leads to a list; but what was read in between was not current. Use a
// newer etcd.
package etcd
