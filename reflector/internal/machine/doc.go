// Package machine is the list-watch protocol as a pure function.
//
// A [Machine] is a comparable value: a state, and what the protocol remembers between
// states. [Machine.Step] takes the outcome of the last action and returns the next machine
// and the next action. The package has no goroutine, clock, randomness or I/O, so that a
// test can write down, search and replay every schedule of failures.
//
//	state.go    the states: Fresh, Listing, Watching, Probing, Confirming, Waiting, Stopped
//	input.go    the outcomes of actions
//	action.go   the actions that the runner performs
//	table.go    the verdict for each kind of failure, as data
//	step.go     the step after a success
//	fail.go     the step after a failure
package machine
