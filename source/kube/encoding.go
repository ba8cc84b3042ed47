package kube

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Encoding is how an object is written. The values are closed.
type Encoding uint8

const (
	JSON Encoding = iota
	Protobuf
)

// String is the encoding's name.
func (e Encoding) String() string {
	switch e {
	case JSON:
		return "JSON"
	case Protobuf:
		return "protobuf"
	}
	return fmt.Sprintf("Encoding(%d)", uint8(e))
}

// encodingOf is how an answer is written: in JSON, unless it says that it is
// protobuf.
func encodingOf(h http.Header) Encoding {
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err == nil && kind == runtime.ContentTypeProtobuf {
		return Protobuf
	}
	return JSON
}

// accept is the Accept header that asks for the source's form and encoding. A
// server that has no protobuf of a kind takes the JSON behind it.
func (s *Source) accept(inJSON [MetadataOnly + 1]string) string {
	text := inJSON[s.form]
	if !s.protobuf {
		return text
	}
	first, _, _ := strings.Cut(text, ",")
	return strings.Replace(first, runtime.ContentTypeJSON, runtime.ContentTypeProtobuf, 1) + "," + text
}
