// Package backoff computes how long to wait before the next attempt.
//
// A schedule is a value. Its Wait is a pure function of the number of attempts that failed
// before, so that a state machine and a simulation can use it: there is no clock here, and the
// caller passes the source of randomness.
//
//	exponential.go  waits that double
//	fibonacci.go    waits that grow as Fibonacci numbers
//	jitter.go       a random part of a wait
package backoff
