package stream

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// Object is an object that a stream can send. Like every keepwatch.Object it is
// immutable.
type Object interface {
	keepwatch.Object
	// JSON returns the whole object.
	JSON() []byte
	// Metadata returns {"apiVersion":…,"kind":…,"metadata":…} as JSON, in this order and
	// without white space around the members. The index stores it, and a DELETED of a
	// difference contains it. The caller may retain it, and must not change it.
	Metadata() []byte
}

// Tabular is an object that the server sent as a row of a table.
type Tabular interface {
	Object
	Cells() []any
	// Columns returns the definitions of the cells. It is empty if the server sent no
	// table.
	Columns() []metav1.TableColumnDefinition
}

// objectOf returns the projection of an object that the source has, or an error that ends the stream.
func (d *delivery) objectOf(o keepwatch.Object) (Object, error) {
	if o, ok := o.(Object); ok {
		return projectionOf(o, d.project)
	}
	return nil, fmt.Errorf("a %T (%s) cannot be streamed: it has no JSON", o, o.Key())
}

// projected is an object with another body.
type projected struct {
	Object
	text []byte
}

func (p projected) JSON() []byte { return p.text }

// projectionOf returns an object whose body is projected. One without a body has none.
func projectionOf(o Object, project func([]byte) ([]byte, error)) (Object, error) {
	if _, done := o.(projected); done || project == nil || len(o.JSON()) == 0 {
		return o, nil
	}
	text, err := project(o.JSON())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Key(), err)
	}
	return projected{o, text}, nil
}

// partialPrefix is the beginning of the Metadata of a PartialObjectMetadata.
const partialPrefix = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",`

// metadataOf returns the Metadata of an object. In that of a PartialObjectMetadata it
// replaces apiVersion and kind by those of kind.
func metadataOf(o Object, kind schema.GroupVersionKind) []byte {
	text := o.Metadata()
	rest, partial := bytes.CutPrefix(text, []byte(partialPrefix))
	if !partial || kind.Empty() {
		return text
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s`, apiVersion, name, rest)
}

var _ Object = lastKnown{}

// lastKnown is a deleted object, as the index had recorded it.
type lastKnown struct {
	key string
	record
}

func (o lastKnown) Key() keepwatch.Key           { return parseKey(o.key) }
func (o lastKnown) UID() keepwatch.UID           { return o.uid }
func (o lastKnown) Revision() keepwatch.Revision { return o.revision }
func (o lastKnown) JSON() []byte                 { return o.metadata }
func (o lastKnown) Metadata() []byte             { return o.metadata }
