// Package background runs the timers and daemons of an operator: functions that run
// beside an object for as long as the object exists and passes their filter.
//
// A [Task] is a declared timer or daemon. A [Set] holds the running tasks of one object;
// [Set.Sync] starts and stops them by the object's state. A [Runner] owns the goroutines
// of all sets. The package knows neither servers nor the functions: it calls them by
// [Object], which the operator implements.
//
// # Files
//
//	task.go     a declared task, its schedule, and the interface to the operator
//	runner.go   the goroutines of all tasks, and their end
//	set.go      the tasks of one object: start and stop
//	run.go      one running task: repeated calls, waits, and its stop
package background
