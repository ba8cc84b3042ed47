// Mutants changes one place of a package at a time, runs the package's own tests on the changed sources, and prints
// what they did not notice.
//
//	go run ./server/internal/testonly/mutants -n 50 -seed 7 ./store ./server/watchcache
//	go run ./server/internal/testonly/mutants -planted
//
// A mutant is killed if the tests fail or exceed their time, invalid if it does not compile, and survives otherwise.
// The sources on disk stay as they are: go reads the changed ones as an overlay. Survivors that no test can notice are
// listed in equivalent.txt with the reason. planted.txt has mistakes written by hand, each of which breaks a promise.
//
//	main.go        flags, and the table
//	site.go        the places of a source file that can be changed, and how
//	run.go         the tests on a mutant
//	equivalent.go  mutants that behave as the original
//	planted.go     mistakes written by hand
package main
