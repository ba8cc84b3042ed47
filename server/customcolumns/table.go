package customcolumns

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/util/jsonpath"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// dateColumn is the type of columns that show an age.
const dateColumn = "date"

// NewTable returns the table of a custom resource, by the columns of a version in its definition, or with
// its age if there are none. The library renders the cells, except dates, for which it would render
// the age at once. NewTable returns an error for a column that can't be parsed, where the library shows
// the columns before it.
func NewTable(defined []apiextensionsv1.CustomResourceColumnDefinition) (*readpath.Table, error) {
	if len(defined) == 0 {
		defined = []apiextensionsv1.CustomResourceColumnDefinition{{
			Name: "Age", Type: dateColumn, Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			JSONPath: ".metadata.creationTimestamp",
		}}
	}
	library, err := tableconvertor.New(defined)
	if err != nil {
		return nil, err
	}
	empty, err := library.ConvertToTable(context.Background(), &unstructured.Unstructured{Object: map[string]any{}}, nil)
	if err != nil {
		return nil, err
	}
	t := table{library: library, dates: map[int]*jsonpath.JSONPath{}}
	for i, column := range defined {
		if column.Type != dateColumn {
			continue
		}
		path := jsonpath.New(column.Name).AllowMissingKeys(true)
		if err := path.Parse(fmt.Sprintf("{%s}", column.JSONPath)); err != nil {
			return nil, err
		}
		t.dates[1+i] = path // behind the name
	}
	return &readpath.Table{Columns: empty.ColumnDefinitions, Row: t.row}, nil
}

// table renders the rows of one version of a custom resource.
type table struct {
	library rest.TableConvertor
	dates   map[int]*jsonpath.JSONPath // by the cell
}

func (t table) row(object runtime.Object) (metav1.TableRow, error) {
	rendered, err := t.library.ConvertToTable(context.Background(), object, &metav1.TableOptions{NoHeaders: true})
	if err != nil {
		return metav1.TableRow{}, err
	}
	if len(rendered.Rows) != 1 {
		return metav1.TableRow{}, fmt.Errorf("an object with %d rows", len(rendered.Rows))
	}
	row := rendered.Rows[0]
	for cell, path := range t.dates {
		if date := found(path, object); !date.IsZero() {
			row.Cells[cell] = readpath.Since{Time: date.Time}
		}
	}
	return row, nil
}

// found returns the date at a path, or zero: then the library's cell describes the error.
func found(path *jsonpath.JSONPath, object runtime.Object) (date metav1.Time) {
	content, ok := object.(runtime.Unstructured)
	if !ok {
		return date
	}
	results, err := path.FindResults(content.UnstructuredContent())
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return date
	}
	text, _ := results[0][0].Interface().(string)
	if date.UnmarshalQueryParameter(text) != nil {
		return metav1.Time{}
	}
	return date
}
