package apiserver

import (
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestConvertedMetadata reads objects whose conversion to a served version adds annotations. PartialObjectMetadata
// and Tables are made before the conversion.
func TestConvertedMetadata(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	for _, converted := range []struct {
		write, read schema.GroupVersionResource
		annotation  string
		spec        map[string]any
	}{
		{
			write:      schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"},
			read:       schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"},
			annotation: "deprecated.daemonset.template.generation",
			spec: map[string]any{
				"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
				},
			},
		}, {
			write:      schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
			read:       schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"},
			annotation: "autoscaling.alpha.kubernetes.io/metrics",
			spec: map[string]any{
				"maxReplicas": int64(3), "scaleTargetRef": map[string]any{"kind": "Deployment", "name": "d",
					"apiVersion": "apps/v1"},
				"metrics": []any{map[string]any{"type": "Pods", "pods": map[string]any{
					"metric": map[string]any{"name": "m"}, "target": map[string]any{"type": "AverageValue", "averageValue": "1"},
				}}},
			},
		},
	} {
		kind := map[string]string{"daemonsets": "DaemonSet",
			"horizontalpodautoscalers": "HorizontalPodAutoscaler"}[converted.write.Resource]
		s.create(converted.write, kind, "a", map[string]any{"spec": converted.spec})
		root := "/apis/" + converted.read.Group + "/" + converted.read.Version + "/namespaces/default/" +
			converted.read.Resource
		for _, path := range []string{root, root + "/a", root + "?watch=1&timeoutSeconds=1&resourceVersion=0"} {
			as := []string{asMetadata, asMetadataProtobuf, asTable}
			if path != root {
				as = []string{ofOne(asMetadata), ofOne(asMetadataProtobuf), asTable}
			}
			s.shows(path, asJSON, converted.annotation)
			s.same(path, asJSON, "")
			for _, accept := range as {
				s.same(path, accept, "")
				// managedFields name it, too
				body := strings.ReplaceAll(s.get(s.ours, path, accept, "").body, "f:"+converted.annotation, "")
				if strings.Contains(body, converted.annotation) {
					t.Errorf("%s as %s has the annotation: %q", path, accept, body)
				}
			}
		}
		s.answersFromMemory(root)
	}
}

// ofOne returns the media type of metadata for GETs and watches.
func ofOne(metadata string) string { return strings.Replace(metadata, "MetadataList", "Metadata", 1) }

// TestEmptyName lists and watches with a field selector for an empty name, which no object has. It selects from a
// collection: the revision that limit and resourceVersion ask for is exact.
func TestEmptyName(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	past := s.create(configMapResource, "ConfigMap", "a", nil).GetResourceVersion()
	s.create(configMapResource, "ConfigMap", "b", nil)
	for _, root := range []string{"/api/v1/namespaces/default/configmaps", "/api/v1/configmaps", "/api/v1/namespaces"} {
		for _, options := range []url.Values{
			{"limit": {"1"}, "resourceVersion": {past}},
			{"resourceVersion": {past}, "resourceVersionMatch": {"Exact"}},
			{"limit": {"1"}, "resourceVersion": {"0"}},
			{"watch": {"1"}, "timeoutSeconds": {"1"}, "resourceVersion": {past}},
			{},
		} {
			options.Set("fieldSelector", "metadata.name=")
			s.same(root+"?"+options.Encode(), asJSON, "")
		}
		exact := root + "?" + url.Values{"fieldSelector": {"metadata.name="}, "limit": {"1"},
			"resourceVersion": {past}}.Encode()
		s.shows(exact, asJSON, `"resourceVersion":"`+past+`"`)
		s.answersFromMemory(exact)
	}
}

// TestOlderServices watches a service that an older version stored, without the fields that were added since. The API
// server completes it in watches that the read path delegates, too.
func TestOlderServices(t *testing.T) {
	notShort(t)
	s := startBoth(t)
	past := s.create(configMapResource, "ConfigMap", "a", nil).GetResourceVersion()
	etcd, err := s.ours.Etcd().Client()
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	const older = `{"kind":"Service","apiVersion":"v1","metadata":{"name":"older","namespace":"default","uid":"00000000-0000-0000-0000-000000000001"},"spec":{"clusterIP":"10.0.9.9","ports":[{"port":80}]}}`
	if _, err := etcd.Put(t.Context(), "/registry/services/specs/default/older", older); err != nil {
		t.Fatal(err)
	}
	watch := "/api/v1/namespaces/default/services?" + url.Values{"watch": {"1"}, "timeoutSeconds": {"1"},
		"resourceVersion": {past}}.Encode()
	s.shows(watch, asJSON, `"clusterIPs":["10.0.9.9"]`)
	s.shows(watch, asTable, `"10.0.9.9"`)
	s.shows(watch+"&includeObject=Object", asTable, `"clusterIPs":["10.0.9.9"]`)
	s.shows(watch+"&includeObject=None", asTable, `"10.0.9.9"`)
}

// TestEvents reads events in both of their groups. Kubernetes has no watch cache for them unless
// --watch-cache-sizes asks for one.
func TestEvents(t *testing.T) {
	notShort(t)
	s := startBoth(t, "--watch-cache-sizes", "events#100")
	const root = "/namespaces/default/events"
	s.create(eventResource, "Event", "a", map[string]any{
		"involvedObject": map[string]any{"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "Started",
		"message": "m", "type": "Normal",
		"firstTimestamp": "2020-01-02T03:04:05Z", "lastTimestamp": "2020-01-02T03:04:06Z", "count": int64(2),
	})
	s.create(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, "Event", "b",
		map[string]any{
			"regarding": map[string]any{"kind": "Pod", "namespace": "default", "name": "q"}, "reason": "Stopped", "note": "n",
			"type": "Normal", "action": "Stop",
			"reportingController": "example.com/c", "reportingInstance": "i", "eventTime": "2020-01-02T03:04:05.000006Z",
		})
	for group, field := range map[string]string{"/api/v1": "involvedObject.name",
		"/apis/events.k8s.io/v1": "regarding.name"} {
		for _, path := range []string{
			group + "/events", group + root, group + root + "?fieldSelector=" + field + "%3Dq", group + root +
				"?fieldSelector=none%3Dq", group + root + "/b",
			group + root + "?watch=1&timeoutSeconds=1&resourceVersion=0",
		} {
			for _, accept := range []string{asJSON, asTable, "application/vnd.kubernetes.protobuf"} {
				s.same(path, accept, "")
			}
		}
		s.shows(group+root+"?fieldSelector="+field+"%3Dq", asJSON, `"name":"b"`)
		s.answersFromMemory(group + root)
		s.answersFromMemory(group + root + "/b")
	}
}

// create creates an object with contents in the default namespace.
func (s *both) create(resource schema.GroupVersionResource, kind, name string,
	contents map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range contents {
		o.Object[field] = value
	}
	o.SetAPIVersion(resource.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	o.SetNamespace("default")
	created, err := s.client.Resource(resource).Namespace("default").Create(s.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return created
}
