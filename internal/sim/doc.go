// Package sim plays a store, a reflector and their consumers against a source
// that does whatever sources have been seen doing, in virtual time, and lets
// package check judge what each consumer was told. It is for tests only.
//
//	world.go      the source's truth: what was committed, compacted, restored
//	fault.go      what can be decided at each point instead of the usual
//	script.go     decisions as text
//	director.go   takes the decisions, by drawing or from a script, and records them
//	source.go     the world as a client sees it, with the faults
//	gate.go       what stands between a process and its source: pauses, shutdowns
//	watch.go      a watch of it
//	lie.go        breaches of the source's contract, for which nobody else is blamed
//	settings.go   what a schedule is like from beginning to end
//	process.go    what is under test: store and reflector, through restarts
//	consumer.go   who follows it by a cursor, and writes down what it is told
//	holder.go     who follows it by a snapshot
//	api.go        the source as a Kubernetes API over HTTP
//	informed.go   an informer that reads it, listener.go: its handlers
//	play.go       one schedule, from the first write to the last goroutine's end
//	verdict.go    what was wrong with it
//	forgive.go    and what of that a lie is to blame for
//	trace.go      what happened in it, to read
//	aim.go        schedules whose faults hit where it matters
//	shrink.go     a shorter schedule with the same problem
//	campaign.go   many schedules
//	report.go     what they have shown
//	mutant.go     where bugs can be planted; mutants_test.go and bugged_test.go: those that are
//
// A schedule is a script: every decision of every actor that was not the usual.
// Actors never act in the same instant of virtual time, or do not see each other
// when they do, so that a script always runs in the same way. A decision that is
// taken out leaves a script, which is how failing ones become short.
//
// What a clean campaign means: none of so many schedules of these faults led to a
// broken promise, a stuck reflector, a lie that went unnoticed, a failure that
// nothing had provoked, or a goroutine that stayed behind. What it does not mean:
// that no other fault exists, that a source which lies is always caught (nothing
// can tell a restored source that has silently passed the revision one holds), or
// that goroutines which act within one instant were tried in every order; that is
// the race detector's and the search's business (reflector/internal/machine).
package sim
