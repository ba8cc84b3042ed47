// Package sinktest tests a sink that stores history, in SQL tables or as messages: it transfers the changes of
// invented resources into it, while histories expire, sources are restored from backups,
// connections end, and commits fail before and after they have taken place.
//
// Receivers without transactions are judged by the [Fold] of the lines that they have received, as their consumers
// fold them.
//
// [Run] compares the tables with the sources at every cut, and in the end it judges their
// history by SQL and the committed pieces by package check. A test calls it with each sink, and
// with sinks that have a planted fault, which it must notice.
//
//	run.go         Run: the scenario
//	world.go       a source: revisions, compaction, restores
//	source.go      one resource of a world as a keepwatch.Source
//	flaky.go       a sink whose commits fail
//	transcript.go  committed pieces as a transcript for package check
//	tables.go      what the tables must be
//	fold.go        the fold of lines that a receiver has received
//	torn.go        a receiver that takes parts of batches, and mutants of it
//	broker.go      what the tests of brokers share
//	consumer.go    a program that reads a broker's messages
//	mutant.go      sinks with planted faults
//	clusters.go    a sink that is opened for several clusters
//	cutter.go      a proxy whose connections break
//	atomic.go      a database that refuses one change of a batch
//	asof.go        objects that are added again, as of each revision
//	history.go     what a database shows of the past
//	points.go      the point of a time, by clocks that jump
//	dashboard.go   the queries of the dashboards of Events, and what they show
//	size.go        a sink that is bounded
//	thinning.go    a random history, stored in a database that is thinned out and in one that is not
//	thinview.go    what both show at each moment, compared
//	hours.go       replays of hours of a history, judged by package check
//	disk_linux.go  a small disk, which can become full or read-only
//	bench.go       Benchmark: pods of a large cluster
package sinktest
