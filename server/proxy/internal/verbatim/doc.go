// Package verbatim stores objects as the API server wrote them, and writes them again in the same bytes: in JSON or
// protobuf, in lists and events, as the metadata alone, and as bookmarks.
//
//	source/kube ─▶ Format.Object ─▶ Object, text ─▶ watchcache ─▶ Format.Decode ─▶ document ─▶ Format.Encode ─▶ readpath
//
// A [Format] is how the server writes the objects of one resource in one [Representation]. It does not know the fields
// of the objects. Of a text it decodes the metadata without managedFields, and the fields that selectors can name.
//
// An object differs from its text in one case: in the event of a deletion, and in a bookmark, it has another
// resourceVersion, which replaces the one in the text. A bookmark has the text of the bookmark that ends a streaming
// list without objects, which the [Layout] of the resource brings.
//
// PartialObjectMetadata is a part of the text. For custom resources it is encoded anew: the server writes the members
// of their metadata in alphabetical order. After a member that is not known here, [Format.HasUnknownMetadata] is true,
// and the server must answer.
//
// # Files
//
//	format.go    how a resource is written     encoding.go  JSON or protobuf, with managedFields or without
//	document.go  an object as a text           json.go      a text in JSON
//	object.go    what a cache knows of it      protobuf.go  a text in protobuf
//	fields.go    fields that selectors name
package verbatim
