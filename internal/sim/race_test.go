//go:build race

package sim

// The race detector checks the code under test. It does not change which bugs are detected,
// and the runs take five times as long.
func init() { *mutants, *swept = 0, 0 }
