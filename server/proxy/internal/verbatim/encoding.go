package verbatim

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Representation is how the objects of a resource are followed. Each is followed by itself.
type Representation struct {
	Encoding Encoding
	Slim     bool // without managedFields
}

const (
	jsonName     = "json"
	protobufName = "protobuf"
	slimSuffix   = ";drop=managedFields"
)

// String returns the name, which metrics and the index on disk have.
func (r Representation) String() string {
	name := jsonName
	if r.Encoding.Protobuf() {
		name = protobufName
	}
	if r.Slim {
		name += slimSuffix
	}
	return name
}

// ParseRepresentation is the inverse of String.
func ParseRepresentation(name string) (Representation, bool) {
	name, slim := strings.CutSuffix(name, slimSuffix)
	return Representation{EncodingOf(name == protobufName), slim}, name == protobufName || name == jsonName
}

// Encoding is how objects are encoded: [JSON] or [Protobuf].
type Encoding interface {
	// Protobuf reports whether it is protobuf.
	Protobuf() bool
	// item returns a copy of an object's text as it stands in a list.
	item(f *Format, text []byte) []byte
	// decode reads the text of a document: its metadata, their place, and the selectable fields.
	decode(o *document) error
	// withVersion returns the text of a document with its present resourceVersion.
	withVersion(o *document) []byte
	// metadataOnly returns an object of which only metadata is known.
	metadataOnly(f *Format, m *metav1.ObjectMeta) ([]byte, error)
	// partial returns the PartialObjectMetadata of a document.
	partial(o *document) []byte
	// withoutAnnotations returns the text of a document without its annotations.
	withoutAnnotations(o *document) []byte
}

// EncodingOf returns an encoding by whether it is protobuf.
func EncodingOf(protobuf bool) Encoding {
	if protobuf {
		return Protobuf{}
	}
	return JSON{}
}
