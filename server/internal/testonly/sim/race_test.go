//go:build race

package sim

// The race detector checks the code under test. It does not change which bugs are detected,
// and the runs take five times as long. A data race shows in most schedules.
func init() { *mutants, *swept, *number = 0, 0, 500 }
