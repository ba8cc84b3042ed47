package apiserver

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/keepwatch/keepwatch/readpath"
)

// A printer of Kubernetes prints ages, such as "5d", so that its row is another one each second. A row
// that is cached must have the time that an age is counted from. Printers do not return it. ageTable
// finds it by experiment: a cell shows the age of a time if it contains that age, and contains
// "<invalid>" in its place when the time is in the future.

// invalidAge is the age of a time in the future.
const invalidAge = "<invalid>"

// ageTable is a printer's table of one kind.
type ageTable struct {
	printer *printers.HumanReadableGenerator
}

// unprinted are the resources whose registries have no printer, or one that shows times to come.
// Requests for their Tables are delegated.
var unprinted = map[schema.GroupResource]bool{
	{Group: "", Resource: "limitranges"}:                           true,
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:    true,
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}: true,
	{Group: "lifecycle.k8s.io", Resource: "evictionrequests"}:      true, // shows times to come
}

// tableOf returns how a resource's objects look in Tables, nil if only the API server knows.
func tableOf(resource schema.GroupResource, example runtime.Object, complete func(runtime.Object)) *readpath.Table {
	if unprinted[resource] {
		return nil
	}
	printer := printers.NewTableGenerator().With(printersinternal.AddHandlers)
	headers, err := printer.GenerateTable(example, printers.GenerateOptions{Wide: true})
	if err != nil {
		return nil
	}
	row := ageTable{printer}.row
	if complete == nil {
		return &readpath.Table{Columns: headers.ColumnDefinitions, Row: row}
	}
	return &readpath.Table{Columns: headers.ColumnDefinitions, Row: func(o runtime.Object) (metav1.TableRow, error) {
		complete(o)
		return row(o)
	}}
}

// row returns an object's row. It changes the object's times and restores them. It fails if a cell
// may depend on the current time in another way than by the age of one of the object's times.
func (t ageTable) row(o runtime.Object) (metav1.TableRow, error) {
	before := time.Now()
	row, err := t.print(o)
	if err != nil {
		return row, err
	}
	after := time.Now()
	times := timesOf(o)
	for i, cell := range row.Cells {
		text, ok := cell.(string)
		if !ok {
			continue
		}
		for _, candidate := range times {
			at := candidate.get()
			age := duration.HumanDuration(after.Sub(at))
			if !strings.Contains(text, age) {
				if age = duration.HumanDuration(before.Sub(at)); !strings.Contains(text, age) {
					continue
				}
			}
			since, found, err := t.confirm(o, i, text, age, candidate, times)
			if err != nil {
				return row, err
			}
			if found {
				row.Cells[i] = since
				break
			}
		}
	}
	return row, nil
}

// confirm reports whether a cell shows the age of a time.
func (t ageTable) confirm(o runtime.Object, cell int, text, age string, candidate timeField, times []timeField) (readpath.Since, bool, error) {
	future := time.Now().Add(time.Hour)
	changed, err := t.cellWith(o, cell, future, func(f timeField) bool { return f == candidate }, times)
	if err != nil || changed == text {
		return readpath.Since{}, false, err
	}
	before, behind, ok := strings.Cut(changed, invalidAge)
	if !ok || before+age+behind != text {
		return readpath.Since{}, false, fmt.Errorf("cell %q is not the age of one time", text)
	}
	// A duration between two times of the object has the same length as an age once: it changes with the other time, too.
	other, err := t.cellWith(o, cell, future, func(f timeField) bool { return f != candidate }, times)
	if err == nil && other != text && other != changed {
		err = fmt.Errorf("cell %q depends on several times", text)
	}
	return readpath.Since{Time: candidate.get(), Before: before, After: behind}, err == nil, err
}

// cellWith prints a cell as it is with some of the object's times set to another time.
func (t ageTable) cellWith(o runtime.Object, cell int, at time.Time, which func(timeField) bool, times []timeField) (string, error) {
	for _, f := range times {
		if which(f) {
			old := f.get()
			f.set(at)
			defer f.set(old)
		}
	}
	row, err := t.print(o)
	if err != nil || cell >= len(row.Cells) {
		return "", err
	}
	text, _ := row.Cells[cell].(string)
	return text, nil
}

func (t ageTable) print(o runtime.Object) (metav1.TableRow, error) {
	table, err := t.printer.GenerateTable(o, printers.GenerateOptions{Wide: true, NoHeaders: true})
	if err != nil {
		return metav1.TableRow{}, err
	}
	if len(table.Rows) != 1 {
		return metav1.TableRow{}, fmt.Errorf("an object has %d rows", len(table.Rows))
	}
	return table.Rows[0], nil
}
