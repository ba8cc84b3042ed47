//go:build race

package machine_test

func init() { defaults.faults = 1 } // nothing runs in parallel here, and all of it ten times slower
