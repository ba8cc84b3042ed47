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

var eventFields = append(texts("involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
	"involvedObject.uid",
	"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "type",
	"reportingComponent"),
	selectable{label: "source", paths: []string{"source.component", "reportingComponent"}})

// selectableFields are those of kube-apiserver, beside metadata.name and metadata.namespace.
var selectableFields = map[string][]selectable{
	"pods": append(texts("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
		"status.phase", "status.podIP",
		"status.nominatedNodeName"), selectable{label: "spec.hostNetwork", paths: []string{"spec.hostNetwork"},
		absent: "false"}),
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
	below := map[string]map[string]json.RawMessage{} // the members of members, each decoded once
	for _, s := range of {
		set[s.label] = s.absent
		for _, path := range s.paths {
			if value, ok := scalarAt(members, below, path); ok {
				set[s.label] = value
				break
			}
		}
	}
	return set
}

// scalarAt returns the scalar at a path of at most two names, or false if there is none, or an empty one.
func scalarAt(members map[string]json.RawMessage, below map[string]map[string]json.RawMessage,
	path string) (string, bool) {
	first, second, nested := strings.Cut(path, ".")
	raw, ok := members[first]
	if nested && ok {
		inner, decoded := below[first]
		if !decoded {
			if json.Unmarshal(raw, &inner) != nil {
				inner = nil
			}
			below[first] = inner
		}
		raw, ok = inner[second]
	}
	if !ok {
		return "", false
	}
	switch raw[0] {
	case '{', '[', 'n':
		return "", false
	case '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err == nil && text != ""
	}
	return string(raw), true
}
