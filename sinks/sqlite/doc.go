// Package sqlite stores streams in a SQLite file: every state of every object with the
// revisions and times between which it was valid, and the cursors, each batch in one
// transaction.
//
// Other processes may read the file at any time, with any SQLite 3.37 or newer and a busy timeout: it is in WAL mode,
// and locked for moments at Open and Close. A lock on the file PATH.lock shuts out other writers. docs/sync.md
// describes the tables.
//
//	sqlite.go   Open, Close, and errors
//	schema.go   the tables
//	write.go    one batch
//	log.go      the length of the write-ahead log
//	expire.go   what is deleted by age and by size
//	compress.go what is compressed, some time after its end
//	thin.go     what is deleted by thinning
//	peaks.go    by what the point of a time is found
//	status.go   the status, while another process may write
//	history.go  the past, while another process may write
//	snapshot.go what the past has in one transaction
package sqlite
