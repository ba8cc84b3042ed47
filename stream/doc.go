// Package stream hands every change of one resource to one consumer, in any
// language, and keeps its place.
//
// A [Stream] is a keepwatch.Target: a reflector feeds it, a [Sink] writes what it
// tells, a [State] remembers what was told: the cursor, and an index of every
// object that the consumer knows (key → UID, revision, last metadata). The bodies
// of objects are not kept. With a state on disk ([Open]) the stream goes on where
// it was after a restart; what was missed and is not in the source's history any
// more comes out as the difference between the index and a list.
//
// # What a consumer is told
//
// Events (ADDED, MODIFIED, DELETED) carry a stable id; the first list and every
// difference end with SYNCED; a difference begins with GAP. Before the first
// SYNCED the list may be started over: what is told then is the difference to
// what was told before.
//
// Folding the events by key, leaving out those whose id was seen before, gives
// at every SYNCED and BOOKMARK exactly the source's state at its revision. That
// holds through any number of restarts and crashes. Where an object's body is no
// longer known, in a DELETED of a difference, the event carries apiVersion, kind
// and metadata.
//
// # What a crash costs
//
// What is told is told in pieces: a batch, a page of a list. Each piece is
//
//  1. announced: which objects it adds and deletes is written to the state,
//  2. told: written to the sink and flushed,
//  3. committed: the index and the cursor are written to the state.
//
// A crash between 1 and 3 leaves it open how much of the piece was told. The
// next run tells it again, with the same ids: from the source's history, or,
// when that is gone, from the announcement. Without the announcement an object
// that was told, and deleted before the next run, would never be told as
// deleted.
//
// A sink must not report a flush before its data are where a crash of the process
// can't lose them. A crash of the machine can lose what the consumer has not made
// durable; the state itself is synced.
//
// # Costs
//
// An object costs its key and the record of it (UID, revision, metadata without
// managedFields) in the state, in memory or on disk. A list costs one bit for
// each object in memory while it runs, and a key for each object that it turns
// out not to have. Nothing else grows with the number of objects.
package stream
