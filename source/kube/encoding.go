package kube

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Encoding is the encoding of an object. The values are closed.
type Encoding uint8

const (
	JSON Encoding = iota
	Protobuf
)

// String returns the encoding's name.
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "JSON"
	case Protobuf:
		return "protobuf"
	}
	return fmt.Sprintf("Encoding(%d)", uint8(e))
}

// encodingOf returns the encoding of a response: JSON, unless its Content-Type is
// protobuf.
func encodingOf(h http.Header) Encoding {
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err == nil && kind == runtime.ContentTypeProtobuf {
		return Protobuf
	}
	return JSON
}

// accept returns the Accept header for the source's representation and encoding. JSON
// follows protobuf, for servers without protobuf for the kind.
func (s *Source) accept(inJSON [MetadataOnly + 1]string) string {
	text := inJSON[s.representation]
	if !s.protobuf {
		return text
	}
	first, _, _ := strings.Cut(text, ",")
	return strings.Replace(first, runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, 1) + "," + text
}
