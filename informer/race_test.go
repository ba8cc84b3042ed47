//go:build race

package informer_test

// raceEnabled: the race detector makes everything ten times slower.
const raceEnabled = true
