//go:build race

package clientgo_test

// raceEnabled: the race detector makes everything ten times slower.
const raceEnabled = true
