// Package readpath answers GET, LIST and WATCH of the Kubernetes API straight from
// watch caches: an HTTP middleware in front of an API server's own handlers, behind its
// authentication, authorization, audit and recovery from panics.
//
//	            ┌── GET, LIST, WATCH ──▶ watchcache: snapshots and watches
//	request ─▶ Handler
//	            └── all the rest ──────▶ next: the API server's handlers
//
// An object is encoded once in each encoding, and what was encoded is cached with it.
// A list is a head, the objects' bytes and a tail. A compressed list is the same of
// segments that were compressed once, spliced into one gzip member. An event of a
// watch is framed once for all who are sent it; one that has fallen behind is sent
// many at a time, and none is cut off for being slow. A row of a Table is kept with the
// times that its ages are counted from, and tells them when it is sent: [Since].
//
// # What is passed on
//
// The handler answers what it can answer exactly as the API server would, byte by
// byte. All else is the API server's: writes, subresources, Tables that are not of
// metadata, YAML, pretty printing, WebSockets, versions other than the stored one, and
// every request that will fail, so that errors are worded in one place; but for a revision
// to come, which was waited for here already. How often, and for which reason, is counted.
//
// # The first list behind a start
//
// What has to be encoded for a list is encoded on all cores, in parts, ahead of what is being sent:
// up to two parts for each core, and no more than 128 KiB of etcd's bytes that are not sent yet.
// An object is decoded once for that, and JSON is written by a plan of its Go type, in the bytes of
// the API machinery's serializer (internal/objectjson). A serializer of another type is called itself.
// [Reader.Warm] encodes in the background what [Resource.Asked] has said that lists ask for.
//
// # Memory
//
// All encodings that are cached count against a budget that all resources share, whichever
// state of an object they are of; those of objects that are garbage give their bytes back. When
// the budget is used up, a clock's hand drops what was not used since it came by last, as far
// as a new encoding needs the room; if everything there was used, the new one is not cached.
// An eighth of the budget is for events that watches share, of which the oldest are dropped.
//
// Large answers are admitted by the bytes that they hold while they are written, and no user may
// hold more than is left free; a request that waits for too long is answered 429. Watches with
// many events to send share buffers in the same way; without one they send events one by one. An
// answer that nobody reads ends with its request's deadline, where the server is wrapped by [EndWrites].
//
// # Files
//
//	handler.go     answers a request, or passes it on  encodings.go   cached encodings of an object or a segment
//	route.go       the API server's routes             budget.go      their bound
//	request.go     what a request asks for             clock.go       which of them are dropped
//	form.go        in which encoding                   compressed.go  compressed segments
//	resource.go    what a resource is                  block.go       gzip members spliced from blocks
//	reader.go      the reader of one resource          crc.go         their checksums, combined
//	get.go         one object                          admission.go   bounds what is written at a time
//	list.go        a list                              chunks.go      writes of lists
//	watch.go       a watch, as watchcache.Receiver     gather.go      writes of watches
//	refuse.go      errors that are not passed on       deadline.go    ends answers that nobody reads
//	item.go        an object in a list                 ahead.go       encodes ahead of what is sent
//	items.go       how items stand in a list           warm.go        encodes before the first request
//	envelope.go    what stands around items            frames.go      events that watches share
//	table.go       rows of a Table                     metrics.go     counters
//	planned.go     JSON by internal/objectjson
package readpath
