// Package objectjson encodes API objects as JSON, in the bytes of encoding/json, which the API
// machinery's serializer calls. It examines each Go type once, and makes an appender for it. It has
// appenders of its own for the types with a MarshalJSON method that most objects contain. It calls
// encoding/json for all other types with such a method, and for the options of encoding/json that the
// API's types do not use.
//
// BenchmarkPod compares it with the libraries that can write the same bytes; docs/notes-performance.md has
// the figures.
//
// AppendMessage writes the same bytes from an object's protobuf message, and decodes only what JSON needs
// decoded. A message that it does not know exactly is decoded.
//
//	append.go    Append, and the choice of an appender for a type
//	struct.go    structs: fields, their names, omitempty and omitzero
//	values.go    booleans, numbers, strings, pointers, slices
//	maps.go      maps, in the order of their keys
//	types.go     Time, FieldsV1, Quantity, IntOrString
//	fieldset.go  the check that lets FieldsV1 be copied
//	strings.go   escaping
//
//	message.go       AppendMessage, and the parts of a message
//	messagefield.go  fields: their names and numbers, omitempty and omitzero
//	messagevalue.go  values, lists, maps, and what is decoded
package objectjson
