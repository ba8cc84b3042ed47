package proxy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selectable is a field that selectors of a built-in kind can name.
type selectable struct {
	label  string
	path   string // in the object's JSON
	absent string // its value if the object does not have it
}

// selectableFields has the kinds whose fields clients select by most. Selectors with others go to the server.
var selectableFields = map[schema.GroupVersionKind][]selectable{
	corev1.SchemeGroupVersion.WithKind("Pod"): {
		{label: "spec.nodeName", path: "spec.nodeName"},
		{label: "spec.restartPolicy", path: "spec.restartPolicy"},
		{label: "spec.schedulerName", path: "spec.schedulerName"},
		{label: "spec.serviceAccountName", path: "spec.serviceAccountName"},
		{label: "spec.hostNetwork", path: "spec.hostNetwork", absent: "false"},
		{label: "status.phase", path: "status.phase"},
		{label: "status.nominatedNodeName", path: "status.nominatedNodeName"},
	},
	corev1.SchemeGroupVersion.WithKind("Node"):      {{label: "spec.unschedulable", path: "spec.unschedulable", absent: "false"}},
	corev1.SchemeGroupVersion.WithKind("Namespace"): {{label: "status.phase", path: "status.phase"}},
	corev1.SchemeGroupVersion.WithKind("Secret"):    {{label: "type", path: "type"}},
}
