package rawwatch

import (
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/check"
	"github.com/keepwatch/keepwatch/test/history"
	"github.com/keepwatch/keepwatch/test/load"
)

// The namespaces of a trial: one name is the beginning of the other.
var namespaces = []string{"ns1", "ns11"}

// resource is a watched resource.
type resource struct {
	schema.GroupVersionResource
	base   string // of its paths in the API
	prefix string // of its keys in etcd
	kind   string
}

var (
	configMaps = resource{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "/api/v1", "/registry/configmaps/", "ConfigMap"}
	widgets    = resource{load.Widgets, "/apis/example.com/v1", "/registry/example.com/widgets/", "Widget"}
	resources  = []resource{configMaps, widgets}
)

// view is a watcher's selection.
type view struct {
	resource
	namespace string // empty: all
	name      string // empty: all
	color     string // the value of a label; empty: any
	protobuf  bool
}

// views are the ways to look at a resource, in each encoding that it has.
var views = func() []view {
	var all []view
	for _, protobuf := range []bool{false, true} {
		all = append(all,
			view{configMaps, "", "", "", protobuf}, view{configMaps, "ns1", "", "", protobuf}, view{configMaps, "ns11", "", "", protobuf},
			view{configMaps, "ns1", itemName(0), "", protobuf}, view{configMaps, "", "", "red", protobuf}, view{configMaps, "ns1", "", "red", protobuf})
	}
	return append(all, view{resource: widgets}, view{resource: widgets, namespace: "ns1"},
		view{resource: widgets, namespace: "ns1", name: itemName(0)}, view{resource: widgets, color: "red"})
}()

// String is the view as the API's path.
func (v view) String() string {
	if v.protobuf {
		return v.url(nil) + " as protobuf"
	}
	return v.url(nil)
}

// url is the path with parameters that are added.
func (v view) url(parameters url.Values) string {
	path, query := v.base, url.Values{}
	if v.namespace != "" {
		path += "/namespaces/" + v.namespace
	}
	if v.name != "" {
		query.Set("fieldSelector", "metadata.name="+v.name)
	}
	if v.color != "" {
		query.Set("labelSelector", "color="+v.color)
	}
	for name, values := range parameters {
		query[name] = values
	}
	return fmt.Sprintf("%s/%s?%s", path, v.Resource, query.Encode())
}

// filter selects the view's objects among those of the resource.
func (v view) filter() check.Filter {
	return func(o keepwatch.Object) bool {
		switch key := o.Key(); {
		case v.namespace != "" && key.Namespace != v.namespace, v.name != "" && key.Name != v.name:
			return false
		}
		return v.color == "" || o.(*history.Object).Labels["color"] == v.color
	}
}
