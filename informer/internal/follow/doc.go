// Package follow is the engine of all informers: it keeps a store equal to a source, and
// delivers the store's changes to handlers.
//
// A handler is a cursor over the store. It has only the last state that it delivered. A
// handler that lags by less than 1,024 changes receives each of them; one that lags by more
// receives the difference between that state and the newest one.
//
// # Files
//
//	follower.go                   the lifecycle: source, reflector, store and handlers of one informer
//	options.go, source.go         the configuration, and the source's contract
//	applier.go, expectation.go    the reflector's target; the type that objects must have
//	transform.go, panics.go       transforms; recovered panics
//	handler.go, progress.go       a cursor over the store for one set of callbacks
//	retries.go                    failed calls
//	read.go, lookup.go            reads: the newest object of a key
//	values.go, index.go           reads: the values of many objects; index functions
//	status.go, latency.go         health, metrics
package follow
