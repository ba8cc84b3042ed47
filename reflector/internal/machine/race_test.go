//go:build race

package machine_test

func init() { defaults.faults = 1 } // the search has no concurrency, and the race detector makes it ten times slower
