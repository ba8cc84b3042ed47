// Package kube reads one resource of a Kubernetes API: a [keepwatch.Source] over
// client-go's transport.
//
// A source does not decode an object's text into a tree. It splits a page or a watch
// frame into objects while it is being read. Each [Object] has its own text in its own
// allocation, and the fields that a list-watch client needs: key, UID, revision, and the
// position of the metadata.
//
// For Go values set [Options].Decode, which receives each object as soon as it was read,
// in a buffer that is reused: memory never contains a second copy of a page or a frame.
// Decode is required for protobuf.
//
// A [Source] makes no decisions. It maps each error to a [keepwatch.Failure] by two
// tables; the reflector decides what follows.
//
// # What the server receives
//
// Lists are paged. They are consistent, or "not older than" a revision. A streaming list
// (KEP-3157) is a watch that begins with the state. Every watch requests bookmarks.
// Credentials, impersonation, exec plugins, proxies and compression are client-go's,
// configured by the rest.Config. A source has no rate limit: a reflector sends one
// request at a time, and waits as the server advises.
//
// # Bounds
//
// One object, with its frame, may have [Options].MaxObject bytes. A watch reads ahead by
// at most 1,000 events or 1 MiB (one event, or one revision of Events, is always allowed); then
// the connection exerts back pressure. At most 64 MiB of deletions wait for their revision
// (internal/deletions). The server decides the length of a page: some aggregated servers ignore
// the limit.
//
// # Files
//
//	source.go            Options, New
//	exchange.go          one request and its response; failures of a response
//	body.go              a response body: length of parts, idle timeout
//	list.go              List, Newest, ListAt, PageAt
//	unchanged.go         Unchanged: has the resource changed while watches were silent?
//	streaminglist.go     StreamList
//	watch.go             Watch; internal/readahead has the buffer
//	frame.go             events of a watch, in either encoding
//	jsonframe.go, protobufframe.go     frames of a watch
//	page.go              a page while it is being read; skipped objects
//	jsonpage.go, protobufpage.go       the response to a list
//	splitter.go          objects from a stream of JSON
//	wire.go              messages from a stream of protobuf
//	protobufobject.go    the main fields of an object in protobuf
//	rawobject.go         an object before validation
//	builder.go           Objects, or Decode's, from raw ones
//	object.go, metadata.go             Object
//	columns.go           columns of tables
//	raw.go, encoding.go  Decode's argument; JSON and protobuf
//	classify.go          the tables from Status and transport error to failure kind
//	status.go            failures of a Status and of an interrupted exchange
//	clienterror.go       failures of client-go's errors
//	definition.go        whether the definition of the type has changed
//	useragent.go         the default User-Agent
package kube
