package controlplane_test

import (
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// immutableCase has an object, a change of it that is refused with an error, and an allowed change.
type immutableCase struct {
	apiVersion, kind, resource string
	namespaced                 bool
	object, change, want       string
	allowed                    string // besides labels; empty for none
}

const (
	jobTemplate = `{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`
	selected    = `"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	reselected  = `{"spec":{"selector":{"matchLabels":{"a":"c"}}}}`
)

var immutableCases = []immutableCase{
	{"scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false, `{"value":7}`, `{"value":8}`,
		"value: Forbidden: may not be changed in an update.", `{"description":"x"}`},
	{"scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false, `{"value":7}`, `{"preemptionPolicy":"Never"}`,
		`preemptionPolicy: Invalid value: "Never": field is immutable`, ""},
	{"v1", "Secret", "secrets", true, `{"immutable":true,"data":{"k":"dg=="}}`, `{"data":{"k":"dw=="}}`,
		"data: Forbidden: field is immutable when `immutable` is set", ""},
	{"v1", "Secret", "secrets", true, `{"immutable":true}`, `{"immutable":false}`,
		"immutable: Forbidden: field is immutable when `immutable` is set", ""},
	{"v1", "Secret", "secrets", true, `{}`, `{"type":"example.com/x"}`,
		`type: Invalid value: "example.com/x": field is immutable`, `{"data":{"k":"dg=="}}`},
	{"v1", "ConfigMap", "configmaps", true, `{"immutable":true}`, `{"binaryData":{"k":"dw=="}}`,
		"binaryData: Forbidden: field is immutable when `immutable` is set", ""},
	{"v1", "Service", "services", true, `{"spec":{"clusterIP":"10.0.0.7","ports":[{"port":80}]}}`,
		`{"spec":{"clusterIP":"10.0.0.8"}}`,
		"spec.clusterIPs[0]: Invalid value: [\"10.0.0.8\"]: may not change once set", `{"spec":{"selector":{"a":"b"}}}`},
	{"v1", "PersistentVolume", "persistentvolumes", false,
		`{"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/a"}}}`,
		`{"spec":{"hostPath":{"path":"/b"}}}`, "spec.persistentvolumesource is immutable after creation",
		`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`},
	{"v1", "PersistentVolumeClaim", "persistentvolumeclaims", true,
		`{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
		`{"spec":{"accessModes":["ReadOnlyMany"]}}`, "spec: Forbidden: spec is immutable after creation",
		`{"spec":{"volumeName":"v","resources":{"requests":{"storage":"2Gi"}}}}`},
	{"apps/v1", "Deployment", "deployments", true, `{"spec":{` + selected + `}}`, reselected,
		"spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable", `{"spec":{"replicas":3}}`},
	{"apps/v1", "ReplicaSet", "replicasets", true, `{"spec":{` + selected + `}}`, reselected, "field is immutable",
		`{"spec":{"replicas":3}}`},
	{"apps/v1", "DaemonSet", "daemonsets", true, `{"spec":{` + selected + `}}`, reselected, "field is immutable",
		`{"spec":{"minReadySeconds":3}}`},
	{"apps/v1", "StatefulSet", "statefulsets", true, `{"spec":{"serviceName":"s",` + selected + `}}`,
		`{"spec":{"serviceName":"t"}}`,
		"updates to statefulset spec for fields other than 'replicas'", `{"spec":{"replicas":3}}`},
	{"batch/v1", "Job", "jobs", true, `{"spec":{"template":` + jobTemplate + `}}`, `{"spec":{"completionMode":"Indexed"}}`,
		"spec.completionMode: Invalid value", `{"spec":{"parallelism":3}}`},
	{"batch/v1", "Job", "jobs", true, `{"spec":{"template":` + jobTemplate + `}}`,
		`{"spec":{"template":{"spec":{"nodeName":"n"}}}}`, "field is immutable", `{"spec":{"suspend":true}}`},
	{"rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true,
		`{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"a"}}`,
		`{"roleRef":{"name":"b"}}`, "roleRef: Invalid value",
		`{"subjects":[{"kind":"User","name":"u","apiGroup":"rbac.authorization.k8s.io"}]}`},
	{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", false,
		`{"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"a"}}`,
		`{"roleRef":{"name":"b"}}`, "cannot change roleRef", ""},
	{"storage.k8s.io/v1", "StorageClass", "storageclasses", false, `{"provisioner":"example.com/p"}`,
		`{"parameters":{"a":"b"}}`,
		"parameters: Invalid value: {\"a\":\"b\"}: field is immutable", `{"allowVolumeExpansion":true}`},
	{"node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false, `{"handler":"a"}`, `{"handler":"b"}`,
		"handler: Invalid value", ""},
	{"resource.k8s.io/v1", "ResourceClaim", "resourceclaims", true,
		`{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}}]}}}`,
		`{"spec":{"devices":{"requests":[{"name":"b","exactly":{"deviceClassName":"c"}}]}}}`, "field is immutable", ""},
	{"resource.k8s.io/v1", "ResourceSlice", "resourceslices", false,
		`{"spec":{"driver":"a.example.com","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`,
		`{"spec":{"driver":"b.example.com"}}`, "spec.driver: Invalid value", `{"spec":{"pool":{"generation":2}}}`},
	{"storagemigration.k8s.io/v1", "StorageVersionMigration", "storageversionmigrations", false,
		`{"spec":{"resource":{"resource":"a"}}}`,
		`{"spec":{"resource":{"resource":"b"}}}`, "spec: Invalid value", ""},
	{"discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true, `{"addressType":"IPv4","endpoints":[]}`,
		`{"addressType":"IPv6"}`, "addressType: Invalid value", ""},
}

// No kind of update changes an immutable field of a built-in kind; other fields can be changed.
func TestImmutableFields(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	for n, f := range immutableCases {
		name := strings.ToLower(f.kind) + "-" + string(rune('a'+n))
		t.Run(name, func(t *testing.T) {
			gv, _ := schema.ParseGroupVersion(f.apiVersion)
			var objects dynamic.ResourceInterface = c.dynamic.Resource(gv.WithResource(f.resource))
			if f.namespaced {
				objects = c.dynamic.Resource(gv.WithResource(f.resource)).Namespace(ns)
			}
			o := &unstructured.Unstructured{Object: map[string]any{}}
			decodeJSON(t, []byte(f.object), &o.Object)
			o.SetAPIVersion(f.apiVersion)
			o.SetKind(f.kind)
			o.SetName(name)
			created := must(objects.Create(t.Context(), o, metav1.CreateOptions{}))(t)
			t.Cleanup(func() { _ = objects.Delete(t.Context(), name, metav1.DeleteOptions{}) })

			var change map[string]any
			decodeJSON(t, []byte(f.change), &change)
			put := created.DeepCopy()
			put.Object = merged(put.Object, change)
			applied := o.DeepCopy()
			applied.Object = merged(applied.Object, change)
			ways := map[string]func() error{
				"PUT": func() error { _, err := objects.Update(t.Context(), put, metav1.UpdateOptions{}); return err },
				"PATCH": func() error {
					_, err := objects.Patch(t.Context(), name, types.MergePatchType, []byte(f.change), metav1.PatchOptions{})
					return err
				},
				"apply": func() error {
					_, err := objects.Apply(t.Context(), name, applied, metav1.ApplyOptions{FieldManager: "m", Force: true})
					return err
				},
			}
			for way, change := range ways {
				if err := change(); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), f.want) {
					t.Errorf("%s: %v, want it invalid: %s", way, err, f.want)
				}
			}
			if now := must(objects.Get(t.Context(), name,
				metav1.GetOptions{}))(t); now.GetResourceVersion() != created.GetResourceVersion() {
				t.Errorf("the object was changed: %v", now.Object)
			}
			for _, allowed := range []string{`{"metadata":{"labels":{"x":"y"}}}`, f.allowed} {
				if allowed != "" {
					must(objects.Patch(t.Context(), name, types.MergePatchType, []byte(allowed), metav1.PatchOptions{}))(t)
				}
			}
			again := must(objects.Get(t.Context(), name, metav1.GetOptions{}))(t)
			must(objects.Update(t.Context(), again, metav1.UpdateOptions{}))(t)
		})
	}
}

// merged returns an object with a merge patch applied.
func merged(object, patch map[string]any) map[string]any {
	result := maps.Clone(object)
	if result == nil {
		result = map[string]any{}
	}
	for name, value := range patch {
		if below, ok := value.(map[string]any); ok {
			inside, _ := result[name].(map[string]any)
			value = merged(inside, below)
		}
		result[name] = value
	}
	return runtime.DeepCopyJSON(result)
}
