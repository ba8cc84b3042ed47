//go:build race

package clientgo_test

// raceEnabled reduces the work: the race detector makes it ten times slower.
const raceEnabled = true
