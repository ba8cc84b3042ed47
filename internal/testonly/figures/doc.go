// Package figures stores what benchmarks measured, and writes the tables of the documentation from it.
//
// A benchmark that runs with -figures.record PART writes the file of the part in test/results/figures. The next run of
// the part replaces the file, or, if its rows are measured one by one, those that it has measured.
// `go test ./internal/testonly/figures -update` (make figures) then writes each table between the lines of its markers;
// without the flag the same test compares them, so that no figure is typed by hand.
//
//	run.go       a part's run: when, of which sources, with which command and on which machine; files on disk
//	figure.go    one figure of all contenders and rounds: medians and ratios
//	unit.go      units and their formats
//	table.go     a run as a table
//	packages.go  what the tests of each package went through: runs beside busy loops, and mutants
//	goals.go     a table of goals, with figures of other tables
//	million.go   the goals for a million objects
//	page.go      which table stands on which page, and the markers around it
package figures
