// Package faults is a reverse proxy for a Kubernetes API server. It breaks connections,
// streams and answers in the ways of networks and servers, by a plan, a seed or on a test's
// command, and records its faults.
//
//	plan, _, err := faults.NamedPlan("compaction")                  // or ReadPlan, ParsePlan, Plan{…}
//	proxy := faults.New(t, server.Config(), plan)
//	follow(proxy.Config())                                          // the test's client
//	proxy.Next(faults.List, "pods", faults.Answer(faults.TooManyRequests))
//	proxy.Now(faults.Watch, "pods", faults.Event(faults.Expired))
//	proxy.Calm()                                                    // what does the client recover from?
//	clients := faults.Report(proxy.Transcript())                    // its requests, faults, retries
//
// The first of these that has a fault for a request decides: Next, then the plan's rules, then its Fate. Now applies
// to open watches. A request meets one fault at most. The proxy decides about a request before it forwards it, and
// changes nothing except by a fault. Rules never select writes.
//
// It serves HTTP/1.1, HTTP/2, and watches over WebSockets, with events in JSON or protobuf. Watches in other
// encodings meet the faults of any answer only.
//
//	proxy.go        Proxy: New and Start, commands, one request
//	plan.go         Plan: rules, their matches and checks
//	plans.go        the named plans, in plans/
//	kind.go         the kinds of faults and their parameters
//	fault.go        Fault: one kind at one place in an answer
//	status.go       the statuses of faults
//	draw.go         which rule decides about a request, by the seed
//	fate.go         faults that a function draws
//	request.go      Request: the class of a request, and its parameters
//	exchange.go     one request and its answer: faults before it and in its body
//	history.go      earlier revisions, for states of the past
//	watch.go        the frames of a watch, and faults between them
//	edit.go         faults that change frames
//	framing.go      frames on the wire
//	encoding.go     events as JSON and protobuf
//	websocket.go    watches over WebSockets, and other upgrades
//	upstream.go     the server behind the proxy, and the credentials for it
//	connection.go   connections that can be reset, frozen and refused
//	certificate.go  the serving certificate, which can expire
//	transcript.go   the transcript: an entry for each request
//	record.go       the transcript in a folder
//	report.go       what each client did
package faults
