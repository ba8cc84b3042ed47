// Package object decodes the objects that source/kube cuts out of responses: typed objects from protobuf
// or JSON, unstructured objects, and metadata only.
//
// The values are those of client-go's decoders, with three exceptions. Equal strings, and equal field sets
// of managers, are stored once, unless a transform may change them. Slices and maps have exactly the
// capacity that they need. Typed objects never have an apiVersion and a kind, which client-go leaves on
// some.
//
// docs/notes-performance.md compares the decoders with the libraries; BenchmarkProtobuf and BenchmarkJSON repeat
// its figures.
//
//	codec.go         Codec: an object of the source becomes an item
//	decoder.go       the values of one type, from any encoding
//	lazy.go          objects that are stored encoded and decoded when they are read
//	interner.go      sharing of strings and field sets
//	protobuf.go      decoding a struct from protobuf; protobufplan.go reads its tags
//	json.go          decoding a typed value from JSON; jsonstruct.go does structs
//	untyped.go       decoding an unstructured object from JSON
//	tokens.go        the tokens of valid JSON
package object
