// Package servers judges API servers with package conform, and makes docs/servers.md of the verdicts.
//
//	make servers                       # all, one after the other: a quarter of an hour, and ten minutes to build kcp once
//	make servers SERVER='kine'         # those whose name matches
//
// # Files
//
//	server.go    the servers, and how each is started
//	result.go    the verdicts on one server, as a file
//	page.go      docs/servers.md
package servers
