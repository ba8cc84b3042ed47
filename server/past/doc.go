// Package past serves the Kubernetes API of every moment in a history, for reading: GET, LIST and WATCH, with pages,
// selectors, metadata and Tables, and discovery.
//
//	https://HOST/at/2026-11-28T10:42:00Z/api/v1/pods
//	             └─ the moment ─────────┘
//
//	request ─▶ Server: which moment? ─▶ caches: one for a resource at a point ─▶ readpath ◀─ watchcache ◀─ source/history
//
// Nothing behind the server knows that it is the past: a watch cache reads a history as it reads any source. The
// caches of the moments that were read last stay; they show one state, and follow nothing. Those of one resource are a
// family: a moment is read as what differs from the nearest one in memory, and shares with it the tree, the objects and
// their encodings. The number of moments is bounded, and the bytes of their objects, of which each counts once; so
// are those of the states that open watches began with. A moment of few bytes is always possible.
//
// # Moments
//
// A moment is what [history.ParseMoment] reads: a time, revision/4711, or now. See [history.View.PointsOf] for what a
// time is for several types. A list in pages stays at the revision
// of its first page, and a request for an exact resourceVersion is answered from that one. A moment that is not known
// is refused with 410 and the nearest known ones; with [Config].AllowGaps, one in a gap is answered with a Warning
// header. The header Keepwatch-Moment has the revision and the time, and whether the type is one of later, or assumed.
//
// # Watches
//
// A watch continues after its resourceVersion, or after the moment if it has none: with the events of the past at the
// pace at which they were recorded, from the time of the moment on, or from that of the last change of any type up to
// the resourceVersion. In quiet times bookmarks move on, so that the next watch does not wait again. At the end, and at
// the moment now, it delivers what a sync stores. /speed/60 behind the moment, or
// ?speed=60, makes it 60 times as fast, and 0 as fast as the client reads. Each watch has a replay of its own, which
// begins with the state of its moment, and of which [Config].MaxReplays bounds the number. It waits for its client, who
// receives each state: it has the newest one in memory, and the batch that is being sent. A gap becomes the difference
// between its ends.
//
// # Who may read
//
// Everybody with [Config].Token, or, with [Config].Cluster, who may read the same in the live cluster now. The objects
// of a namespace that is gone, or was created after the moment or after one of the objects, need the right to read them
// in all namespaces: a history has the times at which it stored its states, which may be later. A history of namespaces
// decides that by their UIDs. Open watches end with the right.
//
// # The page
//
// /keepwatch/, also behind a moment, is a page without scripts: a timeline of a type's objects, the difference of a
// change, and the list of a moment. Events link to the objects that they name, as they were then. A user sees of it
// what a GET of the object or a LIST shows, at the beginning of the timeline and at the moment of the list. Its lanes,
// marks, lines and rows are bounded.
//
// # What is not served
//
// Writes, subresources, protobuf and OpenAPI v2. Custom resources have the columns and the schema of their definition
// at the moment, if the history has customresourcedefinitions.
//
// # Files
//
//	server.go    the way of a request              document.go  an object as the history has it
//	moment.go    the moment of a request           fields.go    fields that selectors can name
//	caches.go    watch caches of resources         table.go     columns
//	family.go    what those of one resource share, and how one is read
//	replay.go    the cache of one watch, which waits for its client
//	authority.go  who may read what: the live cluster decides
//	namespace.go  whether a namespace is the one of then
//	audit.go     the log of requests
//	metrics.go   metrics, and the refusals at a bound
//	discovery.go  groups, versions, resources      openapi.go   their schemas, by package schemas
//	refuse.go    what is not answered, and why    socket.go     watches by WebSockets
//	page.go      the page, and who may see it     drawing.go   its timeline as a picture
//	change.go    its difference of a change       list.go      its list of a moment
//	named.go     its links from Events to the objects that they name
package past
