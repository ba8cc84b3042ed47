// Package webhook sends the messages of streams to an HTTP server as CloudEvents 1.0.
//
// Each message is an event: its source names the cluster and the resource, its subject the object, its id is the
// stream's, and its data is the message in a shape of package stream/shape. One request is in flight at a time, so that
// the receiver has all events of a stream in order. Any answer 2xx means that the receiver has made the
// events durable.
//
// # Failures
//
//	2xx                          delivered
//	408, 425, 429, 5xx, 401, 403, 404, 405, 407, 421, no answer, no answer in time
//	                             the same request again, after Retry-After or an increasing wait, without an end
//	413 to several events        half of them
//	410, 415, 3xx                the end: the receiver wants no events, not this format, or has another address
//	any other answer             to several events: each of them; to one: a dead letter
//
// A dead letter is a line in a file with the event and the answer. It is on disk before the next event is sent. If 100
// events one after the other become dead letters, that is the end, too: the receiver refuses everything. The number of
// them survives a restart, so that a process that is started again and again adds none, and tries the next event only.
//
//	webhook.go  the receiver: Open, Write, Close
//	event.go    messages as CloudEvents
//	request.go  one request, its signature and its answer
//	verdict.go  what to do about an answer
//	dead.go     dead letters
package webhook
