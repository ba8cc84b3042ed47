// Package postgres stores streams in Postgres 14 or newer: every state of every object with
// the revisions and times between which it was valid, and the cursors, each batch in one
// transaction. docs/sync.md describes the tables.
//
// The tables are in the first schema of the connection's search_path, which Open makes if it
// does not exist. One process at a time writes to a schema: an advisory lock shuts out a second
// one, which may wait as a standby. If the lock is lost with its connection, or a pooler does
// not retain it, a row with the writer's token still refuses the transactions of all but the
// newest writer.
//
//	postgres.go  Open, Close
//	search_path.go  the schema of the tables
//	pooler.go    poolers that share sessions
//	errors.go    which errors are worth another attempt
//	schema.go    the tables
//	write.go     one batch
//	expire.go    what is deleted by age and by size
//	thin.go      what is deleted by thinning
//	peaks.go     by what the point of a time is found
//	group.go     older states, of which several are one value
//	views.go     what read the table resources before it became a view
//	text.go      JSON that jsonb accepts
//	name.go      names that columns and indexes accept
//	status.go    the status, while another process may write
//	history.go   the past, while another process may write: its connections
//	snapshot.go  one state of the tables
package postgres
