// Package messages is the form of what a process writes to stderr: messages of its command, and errors of the
// Kubernetes libraries without those that a client causes.
//
//	log.go        text or JSON: --log-format
//	terminal.go   whether lines can be drawn again
//	libraries.go  the log of the Kubernetes libraries
//	clients.go    removes reports about clients from it, and from net/http's
package messages
