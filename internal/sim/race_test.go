//go:build race

package sim

// The race detector looks at the code under test; whether bugs and faults are
// noticed it can't tell, and takes five times as long.
func init() { *mutants, *swept = 0, 0 }
