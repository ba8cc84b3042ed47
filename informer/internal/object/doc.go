// Package object makes Go values of objects that source/kube has cut out: typed,
// from protobuf or JSON; unstructured; or of their metadata alone.
//
// The values are what client-go's decoders make of the same bytes, but for three
// things. Strings that repeat are one string, and so are the fields that a manager
// holds, unless a transform may change them. Slices and maps are as long as they have to be. And typed objects never
// have an apiVersion and a kind, where client-go leaves them on some.
package object
