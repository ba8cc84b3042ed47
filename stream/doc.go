// Package stream delivers every change of one resource to one consumer, in any language,
// and resumes after a restart.
//
// A [Stream] is a keepwatch.Target: a reflector calls it, a [Sink] writes its messages, and
// a [State] stores its cursor and an index of the objects that the consumer has (key → UID,
// revision, last metadata). The bodies of objects are not stored. With a state on disk
// ([Open]) the stream continues after a restart at its cursor. If the source's history no
// longer reaches back to the cursor, the stream delivers the difference between the index
// and a list.
//
// # What a consumer receives
//
// Events (ADDED, MODIFIED, DELETED) have a stable id. The first list and every difference
// end with SYNCED. A difference begins with GAP. Before the first SYNCED the list may be
// started over: the events are then the difference to those before.
//
// A consumer folds the events by key. It ignores an event whose id it has seen, and forgets
// the seen ids at a GAP with the reason rewind: a source that was restored from a backup
// shows old states again, with their old ids. The fold then equals the source's state at
// the revision of every SYNCED and BOOKMARK, through any number of restarts and crashes.
// A DELETED of a difference has apiVersion, kind and metadata only.
//
// A list can show another content of an object at the revision that the consumer has, because the
// definition of its type or the version of the server has changed. The difference has it as
// MODIFIED, with an id of its own; see [Rendition].
//
// # Databases
//
// A consumer that commits a delivery as a whole stores the position and the index itself
// ([NewTransactional]). Then a crash costs nothing: a delivery was committed, or it was not. Package
// stream/sink has the contract of such consumers, and of several streams into one. A consumer that
// receives whole deliveries and stores no index has a state beside it ([NewAtLeastOnce]).
//
// # What a crash costs
//
// Any other stream delivers in steps: a batch, or a page of a list. Each delivery is
//
//  1. announced: the objects that it adds and deletes are written to the state,
//  2. written: its messages go to the sink, which is flushed,
//  3. committed: the index and the cursor are written to the state.
//
// After a crash between 1 and 3 the consumer may have any part of the delivery. The next
// run delivers it again, with the same ids: from the source's history, or, without history,
// from the announcement. Without the announcement, an object that was delivered and then
// deleted before the next run would never be delivered as deleted.
//
// A sink must not return from Flush before its data survive a crash of the process. A crash
// of the machine can lose what the consumer has not made durable; the state itself is
// synced.
//
// # Costs
//
// An object costs its key and its record (UID, revision, metadata without managedFields) in
// the state, in memory or on disk; with a database its key and about 45 bytes in memory
// ([Entries]). A list costs one bit for each object in memory while it is read, and a key for
// up to 50,000 objects that it does not have. Nothing else grows with the number of objects.
//
// # Files
//
//	stream.go       the target's methods: Revision, Invalidate, Apply; one delivery
//	apply.go        the events of a batch
//	replacement.go  the events of a list
//	delivery.go     messages to the consumer, with the changes of the state
//	message.go      the messages, and the contract of a sink
//	object.go       the contract of an object; its metadata and its projection
//	ndjson.go       a sink of lines of JSON
//	table.go        a sink of a table's rows
//	name.go         a sink of names
//	printer.go      a sink of kubectl's printers
//	state.go        the contract of a state, and its position
//	removal.go      the ids of objects that are delivered again
//	memory.go       a state in memory
//	disk.go         a state on disk
//	entries.go      the index of such a stream: see transaction.go
//	transaction.go  a stream whose consumer stores the index: pieces, and what they add up to
//	atleastonce.go  a stream whose consumer receives pieces, and whose state is on disk
//	open.go         opening and verifying the state on disk
//	index.go        its index, for readers
//	identity.go     the stream that a state belongs to
//	record.go       the index's entry of an object, and its encoding
//	rendition.go    the contents of one revision of an object
//	intent.go       an announced event, and its encoding
package stream
