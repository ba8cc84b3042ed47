// Package transfer runs several streams into one sink: each resource has a reflector and a
// stream of its own, and a batch has one piece of each stream that has one.
//
// [Transfer.Run] opens the sink, and continues every stream from what the sink has stored. After an
// error of the sink that another attempt may not have, it opens the sink again. It does the same after
// a commit whose outcome is unknown, and for streams in different epochs; see package stream/sink.
//
// [Transfer.Change] adds resources and ends others while Run runs. That opens the sink again, too, so that a change and
// a crash take the same way: a resource that was added is one that the sink has not stored before, and one that is gone
// is ended from what the sink has stored of it.
//
//	transfer.go  Transfer, Run
//	session.go   one time between Open and Close of the sink
//	batcher.go   pieces that wait at the same time, committed as one batch
//	clock.go     the clock of what is written
//	lines.go     which resources share revisions
//	status.go    Status, and the counts of events
package transfer
