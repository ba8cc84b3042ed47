// Package sim runs a store, a reflector and their consumers against a source with faults
// that real sources have shown, in virtual time. Package check judges the deliveries that
// each consumer received. It is for tests only.
//
//	world.go      the source's history: commits, compactions, restores
//	object.go     one state of an object
//	fault.go      the faults that can be decided at each point
//	script.go     decisions as text
//	director.go   takes the decisions, by drawing or from a script, and records them
//	source.go     the world as a client sees it, with the faults
//	definition.go what the objects look like, which changes without a write
//	gate.go       pauses of a process, shutdowns of its API server
//	watch.go      a watch of the source
//	breach.go     breaches of the source's contract
//	settings.go   the parameters of a schedule
//	process.go    the store and reflector under test, through restarts
//	consumer.go   a consumer that follows a store with a watcher, and its transcript
//	holder.go     a consumer that follows a store by snapshots
//	api.go        the source as a Kubernetes API over HTTP
//	informed.go   an informer that reads that API, listener.go: its handlers
//	play.go       one schedule, from the first write to the end of the last goroutine
//	outcome.go    the problems of a schedule
//	explain.go    the violations that a breach of the contract explains
//	trace.go      a schedule as text
//	aim.go        schedules whose faults hit deletions, relists and resumes
//	shrink.go     a shorter schedule with the same problem
//	campaign.go   many schedules
//	report.go     the sums of many schedules
//	mutant.go     the hooks for planted bugs; the bugs are in mutants_test.go and buggy_test.go
//
// A schedule is a script: every decision of every actor that differs from the default. Actors
// do not act in the same instant of virtual time, or do not see each other's actions in it,
// so that a script always runs in the same way. A script without one of its decisions is a
// script too; so failing schedules can be shrunk.
//
// A campaign without problems means: no schedule of these faults led to a violated promise, a
// stuck reflector, an undetected breach, a failure without a cause, or a goroutine that did not
// end. It does not mean that no other fault exists, that every breach of a source is
// detected (a restored source that has passed the target's revision unseen cannot be), or that
// goroutines that act in one instant were tried in every order; the race detector and the
// search in reflector/internal/machine test those.
package sim
