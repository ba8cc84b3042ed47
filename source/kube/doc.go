// Package kube reads one resource of a Kubernetes API: a [keepwatch.Source]
// over client-go's transport.
//
// The text of an object is never decoded into a tree. A page or a watch frame
// is cut into objects while it is being read: each keeps its own text, in an
// allocation of its own, and beside it what a list-watch client has to know
// (key, UID, revision, where the metadata is).
//
// Who wants Go values instead sets [Options].Decode, and gets each object as soon
// as it was cut out, in a buffer that is used again: there is never a second copy
// of a page, nor of a frame. It is also how objects can come in protobuf.
//
// A [Source] decides nothing. Whatever goes wrong becomes a [keepwatch.Failure]
// by one table; what follows from it is the business of a reflector.
//
// # What the server sees
//
// Lists are paged and consistent, or "not older than" a revision; a streaming
// list (KEP-3157) is a watch that begins with the state; every watch asks for
// bookmarks. Credentials, impersonation, exec plugins, proxies and compression
// are client-go's, as the rest.Config says. There is no rate limit on this
// side: a reflector sends one request at a time and waits as it is told.
//
// # Bounds
//
// One object, with its frame, may have [Options].MaxObject bytes. A watch reads
// ahead by at most 1,000 events or 1 MiB (one event is always allowed), then
// the connection takes the back pressure. A page is as long as the server makes
// it: a server may ignore the limit, as aggregated ones do.
package kube
