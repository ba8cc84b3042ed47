package controlplane_test

import (
	"context"
	"fmt"
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
		`{"spec":{"volumeName":"v"}}`},
	{"apps/v1", "Deployment", "deployments", true, `{"spec":{` + selected + `}}`, reselected,
		"spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable", `{"spec":{"replicas":3}}`},
	{"apps/v1", "ReplicaSet", "replicasets", true, `{"spec":{` + selected + `}}`, reselected, "field is immutable",
		`{"spec":{"replicas":3}}`},
	{"apps/v1", "DaemonSet", "daemonsets", true, `{"spec":{` + selected + `}}`, reselected, "field is immutable",
		`{"spec":{"minReadySeconds":3}}`},
	{"apps/v1", "StatefulSet", "statefulsets", true, `{"spec":{"serviceName":"s",` + selected + `}}`,
		`{"spec":{"serviceName":"t"}}`,
		`spec.serviceName: Invalid value: "t": field is immutable`, `{"spec":{"replicas":3}}`},
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
		`{"roleRef":{"name":"b"}}`, "field is immutable", ""},
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
			t.Cleanup(func() { _ = objects.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })

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

const (
	claimed    = `{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}%s}}`
	bound      = `{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}%s}}`
	attributed = `,"volumeAttributesClassName":"gold"`
	annotated  = `{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"a"}},` +
		`"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}}}`
	csiVolume = `{"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},` +
		`"csi":{"driver":"d.example.com","volumeHandle":"h"}%s}}`
	inZone    = `,"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"%s","operator":"Exists"}]}]}}`
	suspended = `{"spec":{"suspend":true,"template":` + jobTemplate + `}}`
	started   = `{"status":{"startTime":"2026-01-01T00:00:00Z"%s}}`
	moved     = `{"spec":{"template":{"metadata":{"labels":{"c":"d"}},"spec":{"nodeSelector":{"a":"b"}}}}}`
	indexed   = `{"spec":{"completionMode":"Indexed","completions":3,"parallelism":1,"template":` + jobTemplate + `}}`
	gated     = `{"spec":{"containers":[{"name":"c","image":"i"}],"schedulingGates":[{"name":"a.b/c"}]%s}}`
	onNodes   = `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[%s]}}}`
	hasK      = `{"matchExpressions":[{"key":"k","operator":"Exists"}]}`
	hasL      = `{"matchExpressions":[{"key":"l","operator":"Exists"}]}`
	hasBoth   = `{"matchExpressions":[{"key":"k","operator":"Exists"},{"key":"l","operator":"Exists"}]}`
)

// Fields that are immutable under a condition. want is in the error of a merge patch; empty if it is allowed.
// test/real/validation compares more of these with kube-apiserver.
func TestConditionallyImmutableFields(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	on := func(terms string) string { return "," + fmt.Sprintf(onNodes, terms) }
	patchOn := func(terms string) string { return `{"spec":{` + fmt.Sprintf(onNodes, terms) + `}}` }
	for n, f := range []struct{ resource, object, status, patch, want string }{
		{"persistentvolumeclaims", fmt.Sprintf(claimed, ""), "", `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`,
			"spec: Forbidden: spec is immutable after creation"},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, ""), "", `{"spec":{"volumeAttributesClassName":"a"}}`,
			"spec: Forbidden: spec is immutable after creation"},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, ""), "", `{"spec":{"volumeMode":"Block"}}`,
			"volumeMode: Invalid value: \"Block\": field is immutable"},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, ""), fmt.Sprintf(bound, ""),
			`{"spec":{"volumeAttributesClassName":"a","resources":{"requests":{"storage":"1536Mi"}}}}`, ""},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, ""), fmt.Sprintf(bound, ""),
			`{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`,
			"spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, ""), fmt.Sprintf(bound, ""),
			`{"spec":{"resources":{"requests":{"example.com/a":"1"}}}}`, "spec: Forbidden: spec is immutable"},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, attributed), fmt.Sprintf(bound, ""),
			`{"spec":{"volumeAttributesClassName":null}}`, ""},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, attributed),
			fmt.Sprintf(bound, `,"currentVolumeAttributesClassName":"gold"`), `{"spec":{"volumeAttributesClassName":null}}`,
			"update to nil is forbidden"},
		{"persistentvolumeclaims", fmt.Sprintf(claimed, attributed),
			fmt.Sprintf(bound, `,"currentVolumeAttributesClassName":"gold"`), `{"spec":{"volumeAttributesClassName":""}}`,
			"update to empty string is forbidden"},
		{"persistentvolumeclaims", annotated, "", `{"metadata":{"annotations":null}}`,
			`metadata.annotations.volume.beta.kubernetes.io/storage-class: Invalid value: "": field is immutable`},
		{"persistentvolumeclaims", annotated, "", `{"metadata":{"annotations":null},"spec":{"storageClassName":"a"}}`, ""},
		{"persistentvolumeclaims", annotated, "", `{"spec":{"storageClassName":"b"}}`, "spec: Forbidden: spec is immutable"},
		{"persistentvolumes", fmt.Sprintf(csiVolume, ""), "",
			`{"spec":{"csi":{"controllerExpandSecretRef":{"name":"a","namespace":"b"}}}}`, ""},
		{"persistentvolumes", fmt.Sprintf(csiVolume, ""), "",
			`{"spec":{"csi":{"fsType":"ext4","controllerExpandSecretRef":{"name":"a","namespace":"b"}}}}`,
			"spec.persistentvolumesource is immutable after creation"},
		{"persistentvolumes", fmt.Sprintf(csiVolume, attributed), "", `{"spec":{"volumeAttributesClassName":null}}`,
			"spec.volumeAttributesClassName: Forbidden: update from non-nil value to nil is forbidden"},
		{"persistentvolumes", fmt.Sprintf(csiVolume, ""), "", `{"spec":{` + fmt.Sprintf(inZone, "a")[1:] + `}}`, ""},
		{"persistentvolumes", fmt.Sprintf(csiVolume, fmt.Sprintf(inZone, "failure-domain.beta.kubernetes.io/zone")), "",
			`{"spec":{` + fmt.Sprintf(inZone, "topology.kubernetes.io/zone")[1:] + `}}`, ""},
		{"persistentvolumes", fmt.Sprintf(csiVolume, fmt.Sprintf(inZone, "failure-domain.beta.kubernetes.io/zone")), "",
			`{"spec":{` + fmt.Sprintf(inZone, "topology.kubernetes.io/region")[1:] + `}}`,
			"field is immutable, except for updating from beta label to GA"},
		{"resourcequotas", `{"spec":{"hard":{"pods":"9"},"scopes":["BestEffort"]}}`, "",
			`{"spec":{"scopes":["NotBestEffort"]}}`, `spec.scopes: Invalid value: ["NotBestEffort"]: field is immutable`},
		{"csidrivers.storage.k8s.io", `{"spec":{"attachRequired":true}}`, "", `{"spec":{"attachRequired":false}}`,
			"spec.attachedRequired: Invalid value: false: field is immutable"},
		{"jobs.batch", suspended, "", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"other"}]}}}}`,
			"spec.template.spec: Invalid value"},
		{"jobs.batch", suspended, "",
			`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"}}}]}}}}`, ""},
		{"jobs.batch", suspended, "", moved, ""},
		{"jobs.batch", suspended, fmt.Sprintf(started, ""), moved, "spec.template: Invalid value"},
		{"jobs.batch", suspended, fmt.Sprintf(started, `,"conditions":[{"type":"Suspended","status":"True"}]`), moved, ""},
		{"jobs.batch", suspended, `{"status":{"active":1}}`, moved, "spec.template: Invalid value"},
		{"jobs.batch", indexed, "", `{"spec":{"completions":5}}`,
			"spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism"},
		{"jobs.batch", indexed, "", `{"spec":{"completions":5,"parallelism":5}}`, ""},
		{"pods", fmt.Sprintf(gated, `,"nodeSelector":{"a":"b"}`), "", `{"spec":{"nodeSelector":{"c":"d"}}}`, ""},
		{"pods", fmt.Sprintf(gated, `,"nodeSelector":{"a":"b"}`), "", `{"spec":{"nodeSelector":{"a":"c"}}}`,
			"only additions to spec.nodeSelector are allowed"},
		{"pods", fmt.Sprintf(gated, `,"nodeSelector":{"a":"b"}`), "", `{"spec":{"nodeSelector":null}}`,
			"only additions to spec.nodeSelector are allowed"},
		{"pods", fmt.Sprintf(gated, ""), "", patchOn(hasK), ""},
		{"pods", fmt.Sprintf(gated, ""), "", `{"spec":{"affinity":{}}}`, "pod updates may not change fields"},
		{"pods", fmt.Sprintf(gated, on(hasK)), "", patchOn(hasBoth), ""},
		{"pods", fmt.Sprintf(gated, on(hasK)), "", patchOn(hasL), "only additions are allowed"},
		{"pods", fmt.Sprintf(gated, on(hasK)), "", patchOn(hasK + "," + hasL), "no additions/deletions"},
		{"pods", fmt.Sprintf(gated, on(hasK)), "", `{"spec":{"affinity":null}}`, "no additions/deletions"},
	} {
		gr := schema.ParseGroupResource(f.resource)
		var objects dynamic.ResourceInterface = c.dynamic.Resource(gr.WithVersion("v1"))
		if gr.Resource != "persistentvolumes" && gr.Resource != "csidrivers" {
			objects = c.dynamic.Resource(gr.WithVersion("v1")).Namespace(ns)
		}
		o := &unstructured.Unstructured{Object: map[string]any{}}
		decodeJSON(t, []byte(f.object), &o.Object)
		o.SetAPIVersion(gr.WithVersion("v1").GroupVersion().String())
		o.SetKind(map[string]string{"persistentvolumeclaims": "PersistentVolumeClaim", "pods": "Pod", "jobs": "Job",
			"persistentvolumes": "PersistentVolume", "resourcequotas": "ResourceQuota", "csidrivers": "CSIDriver"}[gr.Resource])
		name := fmt.Sprintf("conditional-%d", n)
		o.SetName(name)
		must(objects.Create(t.Context(), o, metav1.CreateOptions{}))(t)
		if f.status != "" {
			must(objects.Patch(t.Context(), name, types.MergePatchType, []byte(f.status), metav1.PatchOptions{}, "status"))(t)
		}
		_, err := objects.Patch(t.Context(), name, types.MergePatchType, []byte(f.patch), metav1.PatchOptions{})
		if f.want == "" && err != nil || f.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), f.want)) {
			t.Errorf("%s %s %s %s: %v, want %q", f.resource, f.object, f.status, f.patch, err, f.want)
		}
		if err := objects.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
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
