package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/keepwatch/keepwatch/server/controlplane/columns"
	"github.com/keepwatch/keepwatch/server/readpath"
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
	// sinceCreation is one more than the index of the cell that shows the age of the object itself, as its column says;
	// 0 if there is none. This cell needs no experiment, which prints a row twice more.
	sinceCreation int
}

// sinceCreation returns one more than the index of the column whose description is that of the creation, or 0.
func sinceCreation(columns []metav1.TableColumnDefinition) int {
	return 1 + slices.IndexFunc(columns, func(c metav1.TableColumnDefinition) bool {
		return c.Name == "Age" && c.Description == metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]
	})
}

// unprinted are the resources whose registries have no printer, or one that shows times to come, or whose
// rows are not in the order of the list. Requests for their Tables are delegated.
var unprinted = map[schema.GroupResource]bool{
	{Group: "", Resource: "limitranges"}:                             true,
	{Group: "storage.k8s.io", Resource: "csistoragecapacities"}:      true,
	{Group: "rbac.authorization.k8s.io", Resource: "roles"}:          true,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:   true,
	{Group: "lifecycle.k8s.io", Resource: "evictionrequests"}:        true, // shows times to come
	{Group: "flowcontrol.apiserver.k8s.io", Resource: "flowschemas"}: true, // in the order of precedence
}

// unread are the fields of messages that a printer does not read, by resource. Conversion does not change the metadata
// of these resources' objects.
var unread = map[schema.GroupResource]readpath.Fields{{Group: "", Resource: "pods"}: columns.UnreadOfPods}

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
	row := ageTable{printer, sinceCreation(headers.ColumnDefinitions)}.row
	if complete == nil {
		return &readpath.Table{Columns: headers.ColumnDefinitions, Row: row, Unread: unread[resource]}
	}
	return &readpath.Table{Columns: headers.ColumnDefinitions, Row: func(o runtime.Object) (metav1.TableRow, error) {
		complete(o)
		return row(o)
	}}
}

// printAttempts bounds how often a row is printed because an age changes meanwhile.
const printAttempts = 10

// row returns an object's row. It changes the object's times and restores them. It fails if a cell
// may depend on the current time in another way than by the age of one of the object's times.
func (t ageTable) row(o runtime.Object) (metav1.TableRow, error) {
	times := timesOf(o)
	for range printAttempts {
		began := time.Now()
		row, err := t.rowWithAges(o, times, agesOf(times, began))
		// Cells that were printed with different ages cannot be compared.
		if sameAges(times, began, time.Now()) {
			return row, err
		}
	}
	return metav1.TableRow{}, fmt.Errorf("an age changed in each of %d attempts to print a row", printAttempts)
}

// agesOf returns the ages of times as printers show them.
func agesOf(times []timeField, now time.Time) []string {
	ages := make([]string, len(times))
	for i, f := range times {
		at := f.get()
		same := slices.IndexFunc(times[:i], func(other timeField) bool { return other.get().Equal(at) })
		if same >= 0 { // most times of an object are few
			ages[i] = ages[same]
			continue
		}
		ages[i] = duration.HumanDuration(now.Sub(at))
	}
	return ages
}

// sameAges reports whether times have the ages now that they had: an age shows whole seconds at most.
func sameAges(times []timeField, then, now time.Time) bool {
	return !slices.ContainsFunc(times, func(f timeField) bool {
		return int(then.Sub(f.get()).Seconds()) != int(now.Sub(f.get()).Seconds())
	})
}

// rowWithAges returns an object's row, while the ages of its times are these.
func (t ageTable) rowWithAges(o runtime.Object, times []timeField, ages []string) (metav1.TableRow, error) {
	row, err := t.print(o)
	if err != nil {
		return row, err
	}
	for i, cell := range row.Cells {
		text, ok := cell.(string)
		if !ok {
			continue
		}
		if created := creationOf(o, times); i+1 == t.sinceCreation && created >= 0 && text == ages[created] {
			row.Cells[i] = readpath.Since{Time: times[created].get()}
			continue
		}
		for j, candidate := range times {
			if !strings.Contains(text, ages[j]) {
				continue
			}
			since, found, err := t.confirm(o, i, text, ages[j], candidate, times)
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

// creationOf returns the index of an object's creation among its times, or -1.
func creationOf(o runtime.Object, times []timeField) int {
	about, ok := o.(metav1.ObjectMetaAccessor)
	if !ok {
		return -1
	}
	object, ok := about.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return -1
	}
	return slices.IndexFunc(times, func(f timeField) bool { return f.seconds == &object.CreationTimestamp })
}

// confirm reports whether a cell shows the age of a time.
func (t ageTable) confirm(o runtime.Object, cell int, text, age string, candidate timeField,
	times []timeField) (readpath.Since, bool, error) {
	future := func(time.Time) time.Time { return time.Now().Add(time.Hour) }
	changed, err := t.cellWith(o, cell, future, func(f timeField) bool { return f == candidate }, times)
	if err != nil || changed == text {
		return readpath.Since{}, false, err
	}
	before, behind, ok := strings.Cut(changed, invalidAge)
	if !ok || before+age+behind != text {
		return readpath.Since{}, false, fmt.Errorf("cell %q is not the age of one time", text)
	}
	other, err := t.cellWith(o, cell, future, func(f timeField) bool { return f != candidate }, times)
	if err != nil {
		return readpath.Since{}, false, err
	}
	if other == text || other == changed {
		return readpath.Since{Time: candidate.get(), Before: before, After: behind}, true, nil
	}
	// A duration between two times of the object is once as long as an age. It is the same in ten years.
	later := func(at time.Time) time.Time { return at.Add(-10 * 365 * 24 * time.Hour) }
	shifted, err := t.cellWith(o, cell, later, func(timeField) bool { return true }, times)
	if err == nil && shifted != text {
		err = fmt.Errorf("cell %q depends on several times", text)
	}
	return readpath.Since{}, false, err
}

// cellWith prints a cell as it is with some of the object's times changed.
func (t ageTable) cellWith(o runtime.Object, cell int, change func(time.Time) time.Time, which func(timeField) bool,
	times []timeField) (string, error) {
	for _, f := range times {
		if which(f) {
			old := f.get()
			f.set(change(old))
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
