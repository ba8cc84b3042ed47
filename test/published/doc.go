// Package published judges operators of other projects with published bugs: at the version that has the bug, and at one
// in which it is repaired. It makes the table of docs/judged.md of the verdicts.
//
//	make published                  # all, one after the other
//	make published BUG='dask'       # those whose name matches
//
// Operators come from PyPI and from the Go module proxy, libraries also from npm.
//
// # Files
//
//	bug.go       the bugs
//	build.go     operators of a version
//	result.go    the verdicts on one bug, as a file
//	table.go     the table of docs/judged.md
package published
