// Package customcolumns renders custom resources as Tables, the responses to `kubectl get`: by the columns of a
// definition, or with the age alone. It needs the definition and the object, and nothing of a server, so that servers,
// a proxy and the past have the same cells.
//
// # Files
//
//	table.go    the Table of a version of a custom resource, by its columns
//	version.go  the versions of a definition
package customcolumns
