// Package conform judges whether a Kubernetes API server keeps the documented rules of lists and
// watches: the rules that caches, controllers and other clients depend on.
//
//	report, err := conform.Run(ctx, cfg, conform.Options{})
//	if err != nil { … }           // no verdict: the server cannot be reached, or refuses to create objects
//	report.Broken()               // the rules that it breaks, each with the two facts that disagree
//
// Run creates a namespace with ConfigMaps, and a custom resource if it may, and deletes them at its
// end. Some rules are judged by single requests. The others are judged by package check: writers
// change objects at random, watchers of all kinds follow, and each transcript is compared with the
// writes that the server acknowledged.
//
// A rule has one of three verdicts: kept, broken, or not offered, which means that the server refuses
// the requests that the rule is about, with a status that clients understand.
//
//	conform.go   Run: the rules in order, the report
//	rule.go      a rule: its sentence, its source, its judgement
//	verdict.go   the verdicts
//	subject.go   a resource in a namespace: requests and their answers
//	stream.go    a watch of it, and the events that a rule expects
//	recovery.go  the answers of a server that starts or is overloaded, which are waited for
//	fixture.go   the namespace and the custom resource, and their deletion
//	object.go    one state of an object
//	list.go      the rules of lists
//	pages.go     the rules of limit and continue
//	watch.go     the rules of watches
//	initial.go   the rules of sendInitialEvents
//	encoding.go  the rules of encodings
//	websocket.go the rule of WebSockets
//	write.go     the rules of resource versions in writes
//	storm.go     the rules that package check judges: writers, watchers, judgement
//	history.go   the acknowledged writes, and the revisions of deletions
//	writer.go    a writer of the storm, and what it knows
//	watcher.go   a watcher of the storm, and its transcript
//	lost.go      the judgement of a server that has lost acknowledged writes
//	frames.go    the events of a watch, as JSON or protobuf
//	print.go     the report as a table, as JSON, as JUnit
package conform
