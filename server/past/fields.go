package past

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// selectable is a field that selectors of a built-in resource can name.
type selectable struct {
	label  string
	paths  []string // in the object's JSON; the first one with a value counts
	absent string   // its value if the object has none
}

func texts(labels ...string) (all []selectable) {
	for _, label := range labels {
		all = append(all, selectable{label: label, paths: []string{label}})
	}
	return all
}

var eventFields = append(texts("involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
	"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "type", "reportingComponent"),
	selectable{label: "source", paths: []string{"source.component", "reportingComponent"}})

// selectableFields are those of kube-apiserver, beside metadata.name and metadata.namespace.
var selectableFields = map[string][]selectable{
	"pods": append(texts("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP",
		"status.nominatedNodeName"), selectable{label: "spec.hostNetwork", paths: []string{"spec.hostNetwork"}, absent: "false"}),
	"nodes":      {{label: "spec.unschedulable", paths: []string{"spec.unschedulable"}, absent: "false"}},
	"namespaces": texts("status.phase"),
	"services":   texts("spec.clusterIP", "spec.type"),
	"secrets":    texts("type"),
	"events":     eventFields,

	"replicationcontrollers": {{label: "status.replicas", paths: []string{"status.replicas"}, absent: "0"}},
	"replicasets.apps":       {{label: "status.replicas", paths: []string{"status.replicas"}, absent: "0"}},
	"jobs.batch":             {{label: "status.successful", paths: []string{"status.succeeded"}, absent: "0"}},
}

// selectedFields returns the values of fields of an object, whose members are given.
func selectedFields(of []selectable, members map[string]json.RawMessage) fields.Set {
	set := fields.Set{}
	for _, s := range of {
		set[s.label] = s.absent
		for _, path := range s.paths {
			if value, ok := scalarAt(members, strings.Split(path, ".")); ok {
				set[s.label] = value
				break
			}
		}
	}
	return set
}

// scalarAt returns the scalar at a path, or false if there is none, or an empty one.
func scalarAt(members map[string]json.RawMessage, path []string) (string, bool) {
	raw, ok := members[path[0]]
	if !ok {
		return "", false
	}
	if len(path) > 1 {
		var below map[string]json.RawMessage
		if json.Unmarshal(raw, &below) != nil {
			return "", false
		}
		return scalarAt(below, path[1:])
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, text != ""
	}
	switch raw[0] {
	case '{', '[', 'n':
		return "", false
	}
	return string(raw), true
}
