package past

import (
	"github.com/go-json-experiment/json/jsontext"

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
		"status.nominatedNodeName"),
		selectable{label: "spec.hostNetwork", paths: []string{"spec.hostNetwork"}, absent: "false"},
		selectable{label: "spec.host", paths: []string{"spec.nodeName"}},
		selectable{label: "status.podIPs"}), // it is accepted, and no Pod has a value
	"nodes":      {{label: "spec.unschedulable", paths: []string{"spec.unschedulable"}, absent: "false"}},
	"namespaces": texts("status.phase"),
	"services":   texts("spec.clusterIP", "spec.type"),
	"secrets":    texts("type"),
	"events":     eventFields,

	"events.events.k8s.io": texts("regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid",
		"regarding.apiVersion", "regarding.resourceVersion", "regarding.fieldPath", "reason", "type", "reportingController"),
	"certificatesigningrequests.certificates.k8s.io": texts("spec.signerName"),
	"clustertrustbundles.certificates.k8s.io":        texts("spec.signerName"),
	"podcertificaterequests.certificates.k8s.io":     texts("spec.signerName", "spec.podName", "spec.nodeName"),
	"resourceslices.resource.k8s.io":                 texts("spec.nodeName", "spec.driver", "spec.pool.name"),

	"replicationcontrollers": {{label: "status.replicas", paths: []string{"status.replicas"}, absent: "0"}},
	"jobs.batch":             {{label: "status.successful", paths: []string{"status.succeeded"}, absent: "0"}},
}

// selectedFields returns the values of fields, of the values at their paths.
func selectedFields(of []selectable, values map[string]string) fields.Set {
	set := fields.Set{}
	for _, s := range of {
		set[s.label] = s.absent
		for _, path := range s.paths {
			if value := values[path]; value != "" {
				set[s.label] = value
				break
			}
		}
	}
	return set
}

// readFields reads the value at a path, and adds the scalars in it that are at paths of fields.
func readFields(d *jsontext.Decoder, path string, of []selectable, values map[string]string) error {
	within := false
	for _, s := range of {
		for _, p := range s.paths {
			if p == path {
				return readScalar(d, path, values)
			}
			within = within || len(p) > len(path) && p[len(path)] == '.' && p[:len(path)] == path
		}
	}
	if !within || d.PeekKind() != '{' {
		return d.SkipValue()
	}
	return eachMember(d, func(name string) error { return readFields(d, path+"."+name, of, values) })
}

// readScalar reads the value at a path, and adds it if it is a scalar.
func readScalar(d *jsontext.Decoder, path string, values map[string]string) error {
	switch d.PeekKind() {
	case '{', '[', 'n':
		return d.SkipValue()
	}
	value, err := d.ReadToken()
	if err == nil {
		values[path] = value.String()
	}
	return err
}
