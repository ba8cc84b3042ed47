package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

var _ keepwatch.Object = (*Object)(nil)

// Object is one state of one object, as the server sent it. It is immutable: callers must
// not change what its methods return.
type Object struct {
	text     []byte // compact at least down to the members of metadata
	kind     *typeMeta
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	metadata span // in text: the value of "metadata"
	managed  span // in text: "managedFields" with one comma; empty if there is none
	row      *row // nil except in a table
}

// span is a range of a text. Invariant: 0 <= from <= to <= MaxObject.
type span struct{ from, to int32 }

func (s span) shifted(by int) span { return span{s.from + int32(by), s.to + int32(by)} }

// row is an object's row in a table.
type row struct {
	cells   []any
	columns []metav1.TableColumnDefinition
}

func (o *Object) Key() keepwatch.Key           { return o.key }
func (o *Object) UID() keepwatch.UID           { return o.uid }
func (o *Object) Revision() keepwatch.Revision { return o.revision }

// JSON returns the whole object on one line, with apiVersion and kind. For TableRows and
// MetadataOnly it is a PartialObjectMetadata.
func (o *Object) JSON() []byte { return o.text }

// Cells returns the object's cells in a table, nil for other representations. Integers are
// int64, other numbers float64.
func (o *Object) Cells() []any {
	if o.row == nil {
		return nil
	}
	return o.row.cells
}

// Columns returns the columns of Cells, nil for other representations.
func (o *Object) Columns() []metav1.TableColumnDefinition {
	if o.row == nil {
		return nil
	}
	return o.row.columns
}
