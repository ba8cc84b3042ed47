// Package customreaders has the read path's readers of custom resources, for API servers that serve them
// by k8s.io/apiextensions-apiserver and read them by package storage.
//
// apiextensions-apiserver opens a storage for each version of a definition, and replaces it when the
// definition changes. A reader is added and removed with its storage. It is used only while its
// definition is the one that apiextensions-apiserver answers by: a client whose requests alternate
// between both never sees an older definition again.
//
// # Files
//
//	readers.go      adds, removes and finds the readers
//	definitions.go  identifies the definition of a storage
package customreaders
