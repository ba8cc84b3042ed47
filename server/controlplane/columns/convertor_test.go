package columns

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// podList has two pods, and a continue token.
func podList() *corev1.PodList {
	more := int64(40)
	return &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "token", RemainingItemCount: &more},
		Items: []corev1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "3"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b", ResourceVersion: "5"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}},
		},
	}
}

func convert(t *testing.T, resource schema.GroupResource, object runtime.Object, options runtime.Object) *metav1.Table {
	t.Helper()
	table, err := For(resource).ConvertToTable(t.Context(), object, options)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestListBecomesRows(t *testing.T) {
	list := podList()
	table := convert(t, corev1.Resource("pods"), list, &metav1.TableOptions{})
	if table.ResourceVersion != "7" || table.Continue != "token" || table.RemainingItemCount == nil ||
		*table.RemainingItemCount != 40 {
		t.Errorf("list metadata %+v", table.ListMeta)
	}
	if len(table.Rows) != 2 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	for i, row := range table.Rows {
		if row.Object.Object != &list.Items[i] {
			t.Errorf("row %d is for %v", i, row.Object.Object)
		}
		if row.Cells[0] != list.Items[i].Name || len(row.Cells) != len(table.ColumnDefinitions) {
			t.Errorf("row %d: cells %v for %d columns", i, row.Cells, len(table.ColumnDefinitions))
		}
	}
}

func TestObjectBecomesOneRow(t *testing.T) {
	pod := &podList().Items[1]
	table := convert(t, corev1.Resource("pods"), pod, nil)
	if len(table.Rows) != 1 || table.Rows[0].Object.Object != pod || table.ResourceVersion != "5" {
		t.Errorf("rows %+v at %s", table.Rows, table.ResourceVersion)
	}
}

// kubectl distinguishes an empty list from a missing one.
func TestEmptyListHasHeadersAndNoRows(t *testing.T) {
	table := convert(t, corev1.Resource("pods"), &corev1.PodList{}, nil)
	if table.Rows == nil || len(table.Rows) != 0 || len(table.ColumnDefinitions) == 0 {
		t.Errorf("rows %#v, %d columns", table.Rows, len(table.ColumnDefinitions))
	}
}

func TestHeadersAreOmittedOnRequest(t *testing.T) {
	table := convert(t, corev1.Resource("pods"), podList(), &metav1.TableOptions{NoHeaders: true})
	if len(table.ColumnDefinitions) != 0 || len(table.Rows) != 2 {
		t.Errorf("%d columns, %d rows", len(table.ColumnDefinitions), len(table.Rows))
	}
}

func TestBookmarkBecomesARow(t *testing.T) {
	table := convert(t, corev1.Resource("pods"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}}, nil)
	if table.ResourceVersion != "9" || len(table.Rows) != 1 {
		t.Errorf("%d rows at %s", len(table.Rows), table.ResourceVersion)
	}
}

func TestCompletedPodsAreMarked(t *testing.T) {
	table := convert(t, corev1.Resource("pods"), podList(), nil)
	if got := table.Rows[0].Conditions; len(got) != 0 {
		t.Errorf("a running pod is marked %+v", got)
	}
	got := table.Rows[1].Conditions
	if len(got) != 1 || got[0].Type != metav1.RowCompleted || got[0].Status != metav1.ConditionTrue ||
		got[0].Reason != "Failed" {
		t.Errorf("a failed pod is marked %+v", got)
	}
}

func TestCallersMayChangeTheirTable(t *testing.T) {
	convert(t, corev1.Resource("pods"), podList(), nil).ColumnDefinitions[0].Name = "changed"
	if name := convert(t, corev1.Resource("pods"), podList(), nil).ColumnDefinitions[0].Name; name != "Name" {
		t.Errorf("the next table's first column is %q", name)
	}
}

func TestOtherResourcesShowNameAndCreation(t *testing.T) {
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	table := convert(t, corev1.Resource("limitranges"), limits, nil)
	if len(table.ColumnDefinitions) != 2 || table.ColumnDefinitions[1].Name != "Created At" ||
		table.Rows[0].Cells[0] != "small" {
		t.Errorf("columns %+v, rows %+v", table.ColumnDefinitions, table.Rows)
	}
}

func TestObjectsOfOtherTypesAreRefused(t *testing.T) {
	table, err := For(corev1.Resource("pods")).ConvertToTable(t.Context(), &corev1.Node{}, nil)
	if err == nil || table != nil || !strings.Contains(err.Error(), "*v1.Node") {
		t.Errorf("table %+v, error %v", table, err)
	}
}

// kube-apiserver shows FlowSchemas in the order in which it matches requests to them.
func TestFlowSchemasAreInOrderOfPrecedence(t *testing.T) {
	schema := func(name string, precedence int32) flowcontrolv1.FlowSchema {
		return flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: precedence}}
	}
	list := &flowcontrolv1.FlowSchemaList{Items: []flowcontrolv1.FlowSchema{schema("catch-all", 10000), schema("b", 1),
		schema("exempt", 1)}}
	var names []string
	for _, row := range convert(t, flowcontrolv1.Resource("flowschemas"), list, nil).Rows {
		names = append(names, row.Cells[0].(string))
	}
	if got := strings.Join(names, " "); got != "b exempt catch-all" {
		t.Errorf("the rows are those of %s", got)
	}
	if Of(flowcontrolv1.Resource("flowschemas")) != nil {
		t.Error("the read path makes rows in the order of the list")
	}
}
