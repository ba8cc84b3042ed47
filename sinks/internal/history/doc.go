// Package history turns the pieces of streams into rows of tables: what SQLite and Postgres
// have in common.
//
// Each state of an object is one row of the table resources. It is valid from the revision
// that wrote it up to the revision that replaced or deleted it: [valid_from, valid_to). Revisions are
// ordered within an epoch; see package sink. A row without an end is current. If a list shows another
// content of an object at the same revision, the new row begins at the revision at which the old one
// begins, and the old row is valid at no revision.
//
//	thin.go    the rows that thinning deletes
//	retain.go  how long the states of each resource are retained
//	gaps.go    the gaps as they were read last
//	origin.go  whether the rows are those of before
//	rows.go    the rows that a piece inserts and ends
//	delta.go   a state as what differs from another one
//	apply.go   the state again
//	clock.go   how much time has passed, for retention and thinning
//	peaks.go   by what the point of a time is found among few rows
//	fill.go    those of states that a version without them has stored
//	schema.go  the names of views, and of streams in the tables
package history
