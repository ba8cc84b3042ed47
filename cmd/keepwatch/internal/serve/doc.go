// Package serve is keepwatch serve.
//
//	serve.go    an API server, until the command is ended
//	history.go  --history: the past of a cluster
package serve
