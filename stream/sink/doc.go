// Package sink defines the contract between streams and the databases and brokers that store them.
//
// A [Sink] stores the pieces of several streams, one stream a resource. It has three methods:
// Open returns what is stored of each stream, Write commits pieces with the positions after
// them, and Close ends. A sink commits the rows and the position in one transaction, so that
// each event is stored exactly once: after a crash of the process, the sink or the machine a
// stream continues from what Open returns.
//
// Package stream/transfer runs the streams. Packages sinks/sqlite,
// sinks/postgres, sinks/kafka and sinks/nats implement the contract.
//
// # Receivers without transactions
//
// A [Receiver] (files, an HTTP server) does not store the position. Package sinks/statedir
// stores it on the local disk, with the index of the objects that were delivered, and makes a
// Sink of both. Each event is then delivered at least once: after a crash the receiver gets the
// last events again, with the same ids and in the same order.
//
// # A consistent cut over resources
//
// Resources that are stored in one etcd share its revisions: they are on one line. Each
// stream has a [Progress]. The state of a line is complete at a revision ([CutOf]) when the
// cursor of each stream has reached it and the history of none begins above it. The rows that
// are valid at that revision are then the state of all resources at one moment.
//
// # A source that was restored from a backup
//
// Such a source repeats revisions with other content. Every stream counts these rewinds as
// its epoch, and (epoch, revision) is ordered. A rewind concerns all streams of a line, but each
// stream detects it by itself. A stream does not detect it if the source has passed its cursor
// again. So a stream whose epoch is lower than that of another stream on its line lists again,
// and a line has no cut until all its streams are in one epoch.
//
// # Files
//
//	sink.go      the contract
//	receiver.go  the contract of receivers without transactions, from which package statedir makes sinks
//	progress.go  the progress of one stream, and the cut of a line
//	status.go    what a sink shows about itself
//	history.go   what a database shows of the past
//	failure.go   which errors of a sink are worth another attempt
package sink
