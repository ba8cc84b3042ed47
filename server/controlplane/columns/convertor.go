package columns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// For returns the convertor of a resource's objects, lists and watch events to Tables. Objects must be
// of the Go types of k8s.io/api, in the version the server stores: HorizontalPodAutoscalers of
// autoscaling/v2, Events of core/v1. Rows refer to the objects they were made from; ages are those
// at the time of the call.
//
// The subresource scale has the columns of autoscaling's "scales".
//
// The convertor is safe for concurrent use.
func For(resource schema.GroupResource) rest.TableConvertor {
	if view, ok := views[resource]; ok {
		return convertor{resource, view}
	}
	return rest.NewDefaultTableConvertor(resource)
}

// Of returns the table of a resource for the read path; nil for a resource without an entry, and for one whose
// rows are not in the order of the list.
func Of(resource schema.GroupResource) *readpath.Table {
	known, ok := views[resource]
	if !ok || known.compare != nil {
		return nil
	}
	c := convertor{resource, known}
	unread := known.unread
	if unread == nil {
		unread = unreadMetadata
	}
	return &readpath.Table{Columns: known.columns, Row: c.row, Unread: unread}
}

// convertor renders the objects of one resource by its view.
type convertor struct {
	resource schema.GroupResource
	view     view
}

// ConvertToTable returns the rows of one object or of a list's items. Column definitions are
// omitted if options, a *metav1.TableOptions, request no headers: every watch event after the first.
func (c convertor) ConvertToTable(_ context.Context, object, options runtime.Object) (*metav1.Table, error) {
	now := time.Now()
	table := &metav1.Table{ListMeta: listMeta(object), Rows: []metav1.TableRow{}}
	if tableOptions, ok := options.(*metav1.TableOptions); !ok || !tableOptions.NoHeaders {
		table.ColumnDefinitions = slices.Clone(c.view.columns)
	}
	if err := eachItem(object, func(item runtime.Object) error {
		row, err := c.row(item)
		if err != nil {
			return err
		}
		for i, cell := range row.Cells {
			if since, ok := cell.(readpath.Since); ok {
				row.Cells[i] = since.At(now)
			}
		}
		table.Rows = append(table.Rows, row)
		return nil
	}); err != nil {
		return nil, err
	}
	if c.view.compare != nil {
		slices.SortStableFunc(table.Rows, func(a, b metav1.TableRow) int {
			return c.view.compare(a.Object.Object, b.Object.Object)
		})
	}
	return table, nil
}

func (c convertor) row(object runtime.Object) (metav1.TableRow, error) {
	row, ok := c.view.row(object)
	if !ok {
		return row, fmt.Errorf("%s has no columns for a %T", c.resource, object)
	}
	return row, nil
}

// eachItem calls do for each item of a list, or for an object that is not a list.
func eachItem(object runtime.Object, do func(runtime.Object) error) error {
	if meta.IsListType(object) {
		return meta.EachListItem(object, do)
	}
	return do(object)
}

// listMeta returns the metadata of a table: that of its list, or of its only object.
func listMeta(object runtime.Object) metav1.ListMeta {
	if list, err := meta.ListAccessor(object); err == nil {
		return metav1.ListMeta{
			ResourceVersion:    list.GetResourceVersion(),
			Continue:           list.GetContinue(),
			RemainingItemCount: list.GetRemainingItemCount(),
		}
	}
	if single, err := meta.CommonAccessor(object); err == nil {
		return metav1.ListMeta{ResourceVersion: single.GetResourceVersion()}
	}
	return metav1.ListMeta{}
}
