package differential

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// sampleResource is what a resource of samples has more than others.
type sampleResource struct {
	first  string   // the name of the sample, or empty if the resource has none
	fields []string // labels of field selectors
	// finalized is set when an object turns out to have finalizers, which no controller removes.
	finalized bool
	exists    bool // the sample was created
}

// name returns the name of the i-th object.
func (s *sampleResource) name(i int) string {
	if i == 0 {
		return s.first
	}
	return fmt.Sprintf("%s-%d", s.first, i)
}

// Lacking returns the resources that have no object.
func (w *World) Lacking() []string {
	var all []string
	for _, r := range w.kinds {
		if !r.sample.exists {
			all = append(all, r.gvr().String())
		}
	}
	return all
}

// addKinds adds all resources that theirs stores, in every version. Objects of a resource are written
// in one version. What cannot be watched is not stored: the statuses of components, which a server
// requests from them.
func (w *World) addKinds(samples []Sample) error {
	client, err := discovery.NewDiscoveryClientForConfig(w.theirs.server.Config())
	if err != nil {
		return err
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	bySample := map[schema.GroupVersionResource]Sample{}
	for _, s := range samples {
		bySample[s.Resource] = s
	}
	byGroup := map[schema.GroupResource]*sampleResource{}
	slices.SortFunc(lists, newestFirst)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || gv.Group == group {
			continue
		}
		for _, served := range list.APIResources {
			gr := schema.GroupResource{Group: gv.Group, Resource: served.Name}
			if strings.Contains(served.Name, "/") || !slices.Contains(served.Verbs, "watch") ||
				slices.ContainsFunc(asked, func(r resource) bool { return r.gvr().GroupResource() == gr }) {
				continue
			}
			if byGroup[gr] == nil {
				byGroup[gr] = &sampleResource{fields: fieldLabels[served.Name]}
			}
			r := resource{group: gv.Group, version: gv.Version, name: served.Name, namespaced: served.Namespaced, names: 3,
				sample: byGroup[gr]}
			if s, ok := bySample[r.gvr()]; ok && r.sample.first == "" {
				if err := r.use(s, served.Kind); err != nil {
					return fmt.Errorf("%v: %w", s.Resource, err)
				}
				w.written = append(w.written, r)
			}
			w.kinds = append(w.kinds, r)
		}
	}
	return nil
}

// use makes a sample the object of r that is written.
func (r *resource) use(s Sample, kind string) error {
	var sample struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal([]byte(s.Object), &sample); err != nil {
		return err
	}
	r.sample.first = sample.Metadata.Name
	at, names := schema.GroupVersion{Group: r.group, Version: r.version}, r.sample
	r.make = func(namespace string, i int) map[string]any {
		var o map[string]any
		_ = json.Unmarshal([]byte(strings.ReplaceAll(s.Object, sampleNamespace, namespace)), &o)
		o["apiVersion"], o["kind"] = at.String(), kind
		m := metadata("sample", namespace, i)
		m["name"] = names.name(i)
		o["metadata"] = m
		return o
	}
	changes := []patch{{body: `{"metadata":{"annotations":{"touched":"once"}}}`},
		{body: `{"metadata":{"annotations":{"touched":"again"}}}`}}
	if s.Change != "" {
		changes = append(changes, patch{body: s.Change})
	}
	if s.Status != "" {
		changes = append(changes, patch{s.Status, "status"}, patch{`{"status":{"conditions":[]}}`, "status"})
	}
	r.change = func(random *rand.Rand) patch { return changes[random.IntN(len(changes))] }
	return nil
}

// newestFirst orders by version: v1, v1beta1, v1alpha1.
func newestFirst(a, b *metav1.APIResourceList) int {
	x, _ := schema.ParseGroupVersion(a.GroupVersion)
	y, _ := schema.ParseGroupVersion(b.GroupVersion)
	if n := version.CompareKubeAwareVersionStrings(y.Version, x.Version); n != 0 {
		return n
	}
	return strings.Compare(x.Group, y.Group)
}

// refused reports whether a server understood a write and refused it: a sample under another name, or
// in another state, may be invalid.
func refused(err error) bool {
	status, ok := err.(errors.APIStatus)
	return ok && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError
}

// fieldLabels are the labels of field selectors by resource, in addition to name and namespace.
var fieldLabels = map[string][]string{
	"certificatesigningrequests": {"spec.signerName"},
	"clustertrustbundles":        {"spec.signerName"},
	"podcertificaterequests":     {"spec.signerName", "spec.podName", "spec.nodeName"},
	"resourceslices":             {"spec.nodeName", "spec.driver", "spec.pool.name"},
	"jobs":                       {"status.successful"},
	"cronjobs":                   {"status.successful"},
	"statefulsets":               {"status.successful"},
	"replicasets":                {"status.replicas"},
	"replicationcontrollers":     {"status.replicas"},
	"leasecandidates":            {"spec.leaseName"},
	"secrets":                    {"type"},
	"services":                   {"spec.clusterIP", "spec.type"},
	"events": {"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
		"involvedObject.apiVersion",
		"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type",
		"regarding.kind", "regarding.namespace", "regarding.name", "reportingController"},
	"persistentvolumes":      {"name"},
	"persistentvolumeclaims": {"name"},
}
