// Package statedir makes a sink of a receiver that stores no positions, such as files, an HTTP server or a
// broker: the positions and the indexes of the delivered objects are in a directory on the local disk.
//
// Each stream has a state of package stream in a directory of its own, which is the one that keepwatch watch
// writes: DIR/pods/stream.db. The stream announces a piece in it, the receiver receives the piece, and the
// stream commits it. A crash at any point costs repeated events with the same ids, and never a deletion.
//
//	statedir.go  the sink
//	record.go    sync.json: the receiver that the directory belongs to, and the status of the streams
package statedir
