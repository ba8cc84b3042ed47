// Package reflector keeps a target equal to a source.
//
// A pure state machine (internal/machine) decides what to do about every failure: one table
// from failure to verdict, one step from input to action. [Reflector.Run] performs the
// actions: it lists, watches, waits, and feeds the [keepwatch.Target]. A relist is the last
// resort. It has a reason, is counted, and is jittered. It gives the target the full list; the
// target computes the difference, and its state stays valid until the list is complete. While the
// target stores a page, the next one is read.
//
//	reflector.go  Reflector and Run
//	options.go    Options; which failures end a start
//	progress.go   Progress, Notice and their states and decisions
//	run.go        one call of Run: performing the machine's actions
//	recorder.go   recording Progress while Run runs
package reflector
