// Package worker is the loop of the server's controllers: it handles keys one at a time, and handles a key again
// after an error. The queue is client-go's.
//
//	worker.go  the queue and its loop
package worker
