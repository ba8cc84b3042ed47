// Command verify runs the tests that are too long for each change, part by part, and records what each part found.
//
//	go run ./verify                 every part, from the folder test (make verify)
//	go run ./verify -area proxy     the parts of one area; -area proxy-personal is one part
//	go run ./verify -list           the parts and their last results
//	go run ./verify -names          their names, as a JSON list
//
// A part that passed on the same sources and seed does not run again, so that an interrupted run continues where it
// stopped. Each result is a file in test/results; docs/verification.md has the table of them.
//
//	main.go      flags, and the loop over the parts
//	part.go      the parts
//	run.go       one part's process, and its log in bin/verify
//	result.go    results on disk
//	sources.go   which commit and which sources a result is about
//	page.go      the table in docs/verification.md
package main
