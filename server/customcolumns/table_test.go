package customcolumns

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// Rows equal the library's at any time.
func TestCustomColumnsAreTheLibrarys(t *testing.T) {
	columns := []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Number", Type: "integer", JSONPath: ".spec.value"},
		{Name: "Text", Type: "string", JSONPath: ".spec.value", Priority: 1, Description: "What it is."},
		{Name: "When", Type: "date", JSONPath: ".spec.value"},
		{Name: "Yes", Type: "boolean", JSONPath: ".spec.value"},
		{Name: "Born", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{Name: "First", Type: "date", JSONPath: ".spec.value[0]"},
	}
	library, err := tableconvertor.New(columns)
	if err != nil {
		t.Fatal(err)
	}
	custom, err := NewTable(columns)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ages := 0
		for _, value := range []any{
			nil, "", "soon", "1999-12-31T23:59:58Z", "1999-12-30T00:00:00.9999999+02:00", "2100-01-01T00:00:00Z",
			"0001-01-01T00:00:00Z", int64(3), 1.5, true,
			[]any{"1999-12-31T00:00:00Z"}, []any{}, []any{int64(1)}, map[string]any{"a": "b"},
		} {
			o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": value}}}
			o.SetName("o")
			o.SetCreationTimestamp(metav1.NewTime(time.Now()))
			row, err := custom.Row(o)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			want, err := library.ConvertToTable(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, cell := range row.Cells {
				if since, ok := cell.(readpath.Since); ok {
					ages++
					row.Cells[i] = since.At(time.Now())
				}
			}
			if !reflect.DeepEqual(row.Cells, want.Rows[0].Cells) {
				t.Errorf("%v: got %v, want %v", value, row.Cells, want.Rows[0].Cells)
			}
			if !reflect.DeepEqual(custom.Columns, want.ColumnDefinitions) {
				t.Errorf("columns %v, want %v", custom.Columns, want.ColumnDefinitions)
			}
		}
		if ages != 14+3+1 {
			t.Errorf("%d cells have an age", ages)
		}
	})
}

func TestCustomResourcesWithoutColumnsShowTheirAge(t *testing.T) {
	custom, err := NewTable(nil)
	if err != nil {
		t.Fatal(err)
	}
	if names := fmt.Sprint(custom.Columns[0].Name, custom.Columns[1].Name, len(custom.Columns)); names != "NameAge2" {
		t.Errorf("columns %v", custom.Columns)
	}
}

// The library treats an object with items as a list.
func TestObjectsThatAreListsHaveNoRow(t *testing.T) {
	custom, err := NewTable(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, items := range [][]any{{}, {map[string]any{"kind": "A"}, map[string]any{"kind": "B"}}} {
		if row, err := custom.Row(&unstructured.Unstructured{Object: map[string]any{"items": items}}); err == nil {
			t.Errorf("%v: %v", items, row.Cells)
		}
	}
}

func TestColumnsThatCannotBeRead(t *testing.T) {
	if table, err := NewTable([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "Bad", Type: "string",
		JSONPath: ".spec["}}); err == nil {
		t.Errorf("columns %v", table.Columns)
	}
}
