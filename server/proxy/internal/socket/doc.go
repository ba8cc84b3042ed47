// Package socket answers watches over WebSockets by a handler of watches without one: each line of its answer is a
// message.
//
// # Files
//
//	socket.go  the response, with its handshake
package socket
