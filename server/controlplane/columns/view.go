package columns

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/readpath"
)

// view is the entry of one resource in the table. Views are immutable.
type view struct {
	columns []metav1.TableColumnDefinition
	// row is false for an object of another Go type than the view's.
	row func(runtime.Object) (metav1.TableRow, bool)
	// compare orders the rows of a list by their objects; nil if they are in the order of the list.
	compare func(a, b runtime.Object) int
	// unread are the fields of the object's message that row does not read; nil are unreadMetadata.
	unread readpath.Fields
}

// views has every resource with columns of its own.
var views = join(admissionViews, apiregistrationViews, appsViews, autoscalingViews, batchViews, certificatesViews,
	coordinationViews, coreViews, discoveryViews, flowcontrolViews,
	networkingViews, nodeViews, policyViews, rbacViews, resourceViews, schedulingViews, storageViews,
	storagemigrationViews)

func join(groups ...map[schema.GroupResource]view) map[schema.GroupResource]view {
	all := map[schema.GroupResource]view{}
	for _, group := range groups {
		maps.Copy(all, group)
	}
	return all
}

// show returns the view of objects of type T. cells returns one value a column, in their order; ages
// are not rendered yet.
func show[T any, Object interface {
	*T
	runtime.Object
}](cells func(Object) []any, columns ...metav1.TableColumnDefinition) view {
	row := func(object runtime.Object) (metav1.TableRow, bool) {
		typed, ok := object.(Object)
		if !ok {
			return metav1.TableRow{}, false
		}
		return metav1.TableRow{Cells: cells(typed), Object: runtime.RawExtension{Object: object}}, true
	}
	return view{columns: columns, row: row}
}

// without returns the view of objects whose messages have fields that their rows do not read.
func (v view) without(unread readpath.Fields) view {
	v.unread = unread
	return v
}

// ordered returns the view of show, whose lists are in the order of compare.
func ordered[Object runtime.Object](v view, compare func(a, b Object) int) view {
	v.compare = func(a, b runtime.Object) int { return compare(a.(Object), b.(Object)) }
	return v
}

// nameColumn and ageColumn are in nearly every view.
var (
	nameColumn = metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name", Description: described(metav1.ObjectMeta{}, "name")}
	ageColumn = text("Age", described(metav1.ObjectMeta{}, "creationTimestamp"))
)

// text declares a column of strings, also of strings with numbers.
func text(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "string", Description: description}
}

// integer declares a column of whole numbers.
func integer(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "integer", Description: description}
}

// boolean declares a column of true and false.
func boolean(name, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: description}
}

// wide returns a column that only `kubectl get -o wide` shows.
func wide(column metav1.TableColumnDefinition) metav1.TableColumnDefinition {
	column.Priority = 1
	return column
}

// documented is an API type that knows the documentation of its fields.
type documented interface{ SwaggerDoc() map[string]string }

// described returns the API documentation of a field, by its name in JSON.
func described(of documented, field string) string { return of.SwaggerDoc()[field] }
