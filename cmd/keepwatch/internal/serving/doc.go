// Package serving is what the commands that are servers share.
//
//	listen.go       the address of a flag
//	certificate.go  TLS: the serving certificate, from files or made
//	credentials.go  the token and the authority of a server, which may outlast it
//	reads.go        serves a handler that has watches, until the command is ended
//	metrics.go      --metrics-bind-address
//	parent.go       ends a server with the process that started it
//	collector.go    how often the garbage collector runs
package serving
