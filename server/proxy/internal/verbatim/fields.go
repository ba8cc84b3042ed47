package verbatim

import (
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selectable is a field that selectors of a built-in kind can name: a string, or a boolean if absent is one.
type selectable struct {
	label   string
	path    string             // in the object's JSON
	numbers []protowire.Number // in its message, from the outermost one on
	absent  string             // its value if the object does not have it
}

// selectableFields has the kinds whose fields clients select by most. Selectors with others go to the server.
var selectableFields = map[schema.GroupVersionKind][]selectable{
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		{label: "spec.nodeName", path: "spec.nodeName", numbers: []protowire.Number{2, 10}},
		{label: "spec.restartPolicy", path: "spec.restartPolicy", numbers: []protowire.Number{2, 3}},
		{label: "spec.schedulerName", path: "spec.schedulerName", numbers: []protowire.Number{2, 19}},
		{label: "spec.serviceAccountName", path: "spec.serviceAccountName", numbers: []protowire.Number{2, 8}},
		{label: "spec.hostNetwork", path: "spec.hostNetwork", numbers: []protowire.Number{2, 11}, absent: "false"},
		{label: "status.phase", path: "status.phase", numbers: []protowire.Number{3, 1}},
		{label: "status.nominatedNodeName", path: "status.nominatedNodeName", numbers: []protowire.Number{3, 11}},
	},
	corev1.SchemeGroupVersion.WithKind("Node"): {
		{label: "spec.unschedulable", path: "spec.unschedulable", numbers: []protowire.Number{2, 4}, absent: "false"},
	},
	corev1.SchemeGroupVersion.WithKind("Namespace"): {{label: "status.phase", path: "status.phase",
		numbers: []protowire.Number{3, 1}}},
	corev1.SchemeGroupVersion.WithKind("Secret"): {{label: "type", path: "type", numbers: []protowire.Number{3}}},
}
