// Package matrix measures what the users of watch clients see when something goes wrong.
//
// A cell is one client, in an unmodified release, and one plan of faults. It runs a real API server, a
// proxy with the plan, the client as a process, and a writer. The history of the writes is read from
// etcd itself. A cell has what the client's user did not see, or saw twice, the client's requests, and
// the time until the client's state was the server's again; package check judges the events.
//
// The results are data, in the folder results. The command page makes docs/matrix.md of them. The plan LostHistory is
// apart: it kills the API server itself, for clients at that server and behind keepwatch proxy; the command page
// writes its table into docs/proxy.md.
//
//	plan.go        what goes wrong
//	losthistory.go the plan LostHistory, and its table
//	server.go      the API server, and etcd's history
//	writer.go      the writes
//	run.go         one cell, from the client's start to the end of its recovery
//	fold.go        the state that a client's events lead to
//	user.go        what the client's user has seen, and what not
//	measure.go     a cell's result
//	transcript.go  a client's lines as a transcript for package check
//	result.go      the result, and the files of results
//	mark.go        a result as one of three marks
//	page.go        docs/matrix.md
//	summary.go     its table of numbers
//	plot.go        its figures
package matrix
