// Package schemas has the OpenAPI v3 documents of the types of a history: which fields their objects have, for kubectl
// explain. Those of custom resources are in their definitions, and those of built-in kinds are the newest that this
// program knows, because a history does not have those of its cluster.
//
//	schemas.go  the documents, one a group and version
package schemas
