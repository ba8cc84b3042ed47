// Package readpath answers GET, LIST and WATCH of the Kubernetes API from watch caches. It is an HTTP
// handler in front of an API server's own handlers, after its authentication, authorization, audit and
// recovery from panics.
//
//	            ┌── GET, LIST, WATCH ──▶ watchcache: snapshots and watches
//	request ─▶ Handler
//	            └── delegated ─────────▶ the API server's handlers
//
// An object is usually encoded once in each encoding that is read again, and the encodings are cached with it. A LIST
// is a head, the objects' encodings and a tail. A compressed LIST consists of segments that were compressed once, as
// blocks of one gzip member. An event is usually encoded once for all watches that send it, and compressed once for
// those of them that are compressed: streaming lists. A lagging watch sends many events with one write; none is ended
// for being slow. A row of a Table is cached without its ages, which are computed when it is sent: [Since].
//
// # Delegated requests
//
// The handler answers requests that it can answer exactly as the API server would, byte by byte. It
// delegates all others to the API server's handlers: writes, subresources, YAML,
// indented Tables and watches, WebSockets, versions other than the stored one. It also delegates requests that fail,
// so that one place words the errors, except for requests that have already waited for a revision. A
// metric counts delegated requests by reason.
//
// A large list in JSON or as a Table is encoded while it is sent. If an object turns out to be unreadable, the
// response ends within its body, and the log names the object. Later lists of the object are delegated, as are
// those of an object that the watch cache could not decode: it tries each object that it receives, and those of
// the start some seconds later.
//
// # The first list after a start
//
// The objects of a list are encoded on all cores, in parts, ahead of what is sent: up to two parts for
// each core, and no more than 128 KiB of the source's bytes. An object is decoded once for its readers
// and its encoding. The API machinery's JSON serializer is replaced by plans of Go types that write the
// same bytes (internal/objectjson); other serializers are called themselves. JSON of objects whose protobuf
// the watch cache has, and of their metadata, is made of the protobuf, without a Go value. [Reader.Warm] encodes in
// the background the lists that [Resource.ListEncodingUsed] has reported before.
//
// # Memory
//
// All cached encodings count against a budget that all resources share, whichever state of an object they belong to.
// The encodings of an object that is garbage are dropped. When the budget is used up, the CLOCK algorithm drops
// encodings that were not used since its hand last passed them, as far as a new encoding needs the room. Encodings
// that were not used for five to fifteen minutes are dropped, too. If all of these were used, the new one is not
// cached. The first large list in an encoding, and the initial state of a watch, cache nothing but protobuf and
// compressed blocks: only what is listed again within fifteen minutes is worth the memory. An eighth of the budget is
// for encodings of events, of which the oldest are dropped. Indented JSON, for browsers and curl, is made of the
// compact encodings while it is sent, and not cached.
//
// Large responses are admitted by the bytes of their buffers. A user, or the service accounts of a namespace, may
// hold at most as many buffers as remain free for others. While a request waits, responses end whose clients have
// read nothing for 5 s. A request that waits too long is answered 429, or delegated: see [Budget.DelegateBusy].
// Watches with many events to send share other buffers by the same rule; without one, a watch sends its events one by
// one. A response that its client does not read ends at the deadline of its request, if the server is wrapped by
// [WithWriteDeadline]; a watch a minute after its timeout, its context or its cache has ended.
//
// # Files
//
// The way of a request: handler.go, request.go, then get.go, list.go or watch.go.
//
//	handler.go     answers a request or delegates it    errors.go         errors that are answered here
//	request.go     parses a request                     admission.go      bounds the buffers in use
//	route.go       the API server's routes              admit.go          admits large responses
//	encoding.go    negotiates the encoding              deadline.go       ends responses that no client reads
//	progress.go    ends them early if others wait
//	resource.go    the description of a resource        chunkwriter.go    writes lists in chunks
//	reader.go      the reader of one resource           eventwriter.go    writes several events at once
//	get.go         the response to a GET                metrics.go        counters
//	list.go        the response to a LIST,              watch.go          the response to a WATCH
//	listlength.go    its length,                        eventencoding.go  encodings of events
//	listwrite.go     its parts, written in order        itemencoding.go   encodings of objects in lists
//	listhead.go    bytes before and after the items     object.go         an object on its own
//	listbody.go    bytes between the items              table.go          rows of a Table
//	unread.go      what rows do not show of messages    compare.go        Tables beside the server's own
//	indent.go      indented JSON                        cold.go           drops encodings that are not used
//	pipeline.go    encodes ahead of what is sent        planserializer.go JSON by internal/objectjson
//	view.go        lists and watches of some namespaces, and their continue tokens
//	warm.go        encodes before the first request     encodinglist.go   cached encodings of an object
//	segmentblock.go  compressed segments                budget.go         their bound
//	block.go       blocks of a gzip member              clock.go          which of them are dropped
//	crc.go         their checksums, combined            listings.go       which encodings clients list again
package readpath
