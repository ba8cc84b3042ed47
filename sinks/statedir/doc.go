// Package statedir makes a sink of a receiver that stores no positions, such as files, an HTTP server or an output: the
// positions and the indexes of the delivered objects are in a directory on the local disk.
//
// Each stream has a state of package stream in a directory of its own: DIR/pods/stream.db.
// The stream announces a piece in it, the receiver receives the piece, and the stream commits it there. After a
// crash at any point, events are repeated with the same ids, and no deletion is lost.
//
//	statedir.go  the sink
//	record.go    sync.json: the receiver that the directory belongs to, and the status of the streams
package statedir
