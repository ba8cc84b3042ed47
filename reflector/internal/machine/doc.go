// Package machine is the list-watch protocol as a pure function.
//
// A [Machine] is a comparable value: a state and what is remembered between
// states. [Machine.Step] takes what has just happened and returns the machine
// after it together with the one action to perform next. There is no goroutine,
// clock, randomness or I/O here, so that every schedule of failures can be
// written down, searched and replayed.
//
//	state.go    where we are: Fresh, Listing, Watching, Probing, Proving, Waiting, Stopped
//	input.go    what can happen
//	action.go   what can be asked of the runner
//	table.go    the verdict for each kind of failure, as data
//	step.go     one step
//	fail.go     the step after a failure
package machine
