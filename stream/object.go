package stream

import (
	"bytes"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
)

// Object is what a stream can tell. Like every keepwatch.Object it is immutable.
type Object interface {
	keepwatch.Object
	// JSON is the whole object.
	JSON() []byte
	// Metadata is {"apiVersion":…,"kind":…,"metadata":…} as JSON, in this order and
	// without white space around these: what is remembered of the object and told
	// of it when it is gone. The caller may keep it, and must not change it.
	Metadata() []byte
}

// Tabular is an object that the server gave as a row of a table.
type Tabular interface {
	Object
	Cells() []any
	// Columns are what the cells are of; empty when the server made no table.
	Columns() []metav1.TableColumnDefinition
}

// tellable asks of an object what a stream needs.
func tellable(o keepwatch.Object) (Object, error) {
	if o, ok := o.(Object); ok {
		return o, nil
	}
	return nil, fmt.Errorf("a %T (%s) can't be told: it has no JSON", o, o.Key())
}

// shownInPart begins the Metadata of an object that a server shows in part.
const shownInPart = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata",`

// metadataOf is the Metadata of an object, which is of kind if it does not say
// itself what it is.
func metadataOf(o Object, kind schema.GroupVersionKind) []byte {
	text := o.Metadata()
	rest, partial := bytes.CutPrefix(text, []byte(shownInPart))
	if !partial || kind.Empty() {
		return text
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,%s`, apiVersion, name, rest)
}

var _ Object = lastKnown{}

// lastKnown is an object that is gone, as far as it is remembered.
type lastKnown struct {
	key string
	record
}

func (o lastKnown) Key() keepwatch.Key           { return parseKey(o.key) }
func (o lastKnown) UID() keepwatch.UID           { return o.uid }
func (o lastKnown) Revision() keepwatch.Revision { return o.revision }
func (o lastKnown) JSON() []byte                 { return o.metadata }
func (o lastKnown) Metadata() []byte             { return o.metadata }
