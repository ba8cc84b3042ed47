package rawwatch

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

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
	configMaps = resource{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "/api/v1",
		"/registry/configmaps/", "ConfigMap"}
	widgets   = resource{load.Widgets, "/apis/example.com/v1", "/registry/example.com/widgets/", "Widget"}
	resources = []resource{configMaps, widgets}
)

// view is a watcher's selection.
type view struct {
	resource
	namespace string // empty: all
	name      string // empty: all
	color     string // the value of a label; empty: any
	protobuf  bool
	metadata  bool // metadata alone
	initial   bool // begins with the state, by a streaming list
	quiet     bool // without bookmarks
	field     bool // the namespace is a field selector, not in the path
	brief     bool // a watch ends after two seconds, and the next one continues
}

// views are the ways to look at a resource, in each encoding that it has.
var views = func() []view {
	var all []view
	for _, protobuf := range []bool{false, true} {
		for _, v := range []view{
			{}, {namespace: "ns1"}, {namespace: "ns11"}, {namespace: "ns1", name: itemName(0)}, {color: "red"},
			{namespace: "ns1", color: "red"},
		} {
			v.resource, v.protobuf = configMaps, protobuf
			all = append(all, v)
		}
	}
	return append(all, view{resource: widgets}, view{resource: widgets, namespace: "ns1"},
		view{resource: widgets, namespace: "ns1", name: itemName(0)}, view{resource: widgets, color: "red"})
}()

// moreViews are views, the same as metadata, with a streaming list at first, without bookmarks, and with field
// selectors.
var moreViews = func() []view {
	all := slices.Clone(views)
	for _, v := range views {
		metadata, initial, quiet, field := v, v, v, v
		metadata.metadata, initial.initial, quiet.quiet, field.field = true, true, true, true
		both := metadata
		both.initial = true
		all = append(all, metadata, initial, quiet, both)
		if v.namespace != "" {
			all = append(all, field)
		}
	}
	return all
}()

// replayedViews are those of moreViews that are JSON, and the same with brief watches.
var replayedViews = func() (all []view) {
	for _, v := range moreViews {
		if !v.protobuf {
			brief := v
			brief.brief = true
			all = append(all, v, brief)
		}
	}
	return all
}()

// String is the view as the API's path.
func (v view) String() string {
	text := v.url(nil)
	for _, part := range []struct {
		is   bool
		text string
	}{{v.protobuf, " as protobuf"}, {v.metadata, ", metadata alone"}, {v.initial, ", with a streaming list"},
		{v.quiet, ", without bookmarks"}, {v.brief, ", in brief watches"}} {
		if part.is {
			text += part.text
		}
	}
	return text
}

// accept is the media type of the view.
func (v view) accept() string {
	accept := "application/json"
	if v.protobuf {
		accept = "application/vnd.kubernetes.protobuf"
	}
	if v.metadata {
		accept += ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	}
	return accept
}

// url is the path with parameters that are added.
func (v view) url(parameters url.Values) string {
	path, query := v.base, url.Values{}
	var fields []string
	if v.field {
		fields = append(fields, "metadata.namespace="+v.namespace)
	} else if v.namespace != "" {
		path += "/namespaces/" + v.namespace
	}
	if v.name != "" {
		fields = append(fields, "metadata.name="+v.name)
	}
	if len(fields) > 0 {
		query.Set("fieldSelector", strings.Join(fields, ","))
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

// unencoded is the view in JSON.
func (v view) unencoded() view {
	v.protobuf = false
	return v
}
