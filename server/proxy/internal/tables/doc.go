// Package tables decides which Tables memory answers: those of which it is proven that the API server prints the same.
//
//	request ─▶ Proofs.Of ─▶ Proven, or nothing: then the server answers, and a proof begins
//
// A proof compares all rows of a resource with the server's, byte for byte except for ages. It holds for a definition
// of the resource and a version of the server. While a [Proven] is used, samples are compared. When its basis changes,
// or a sample differs, open watches of the Table end.
//
// The cells of custom resources depend on their definition and the object. Those of built-in kinds are in the server's
// program, and are never proven.
//
// # Files
//
//	proofs.go       what is proven, and for how long    compare.go  compares Tables with the server's
//	definitions.go  the columns of custom resources
package tables
