package openapi

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/yaml"
)

// applier is server-side apply of one kind, as the API server sets it up, on one live object.
type applier struct {
	t       *testing.T
	manager *managedfields.FieldManager
	live    runtime.Object
}

func newApplier(t *testing.T, gvk schema.GroupVersionKind, subresource string) *applier {
	t.Helper()
	converter, err := managedfields.NewTypeConverter(v3Schemas(t), false)
	if err != nil {
		t.Fatal(err)
	}
	scheme := builtInScheme(t)
	manager, err := managedfields.NewDefaultFieldManager(converter, runtime.UnsafeObjectConvertor(scheme),
		scheme, scheme, gvk, gvk.GroupVersion(), subresource, nil)
	if err != nil {
		t.Fatal(err)
	}
	live, err := scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	live.GetObjectKind().SetGroupVersionKind(gvk)
	return &applier{t: t, manager: manager, live: live}
}

// apply merges the manifest in the name of the field manager into the live object.
func (a *applier) apply(fieldManager, manifest string) error {
	a.t.Helper()
	applied := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &applied.Object); err != nil {
		a.t.Fatal(err)
	}
	merged, err := a.manager.Apply(a.live, applied, fieldManager, false)
	if err == nil {
		a.live = merged
	}
	return err
}

// mustApply is apply where no conflict is expected.
func (a *applier) mustApply(fieldManager, manifest string) {
	a.t.Helper()
	if err := a.apply(fieldManager, manifest); err != nil {
		a.t.Fatalf("apply as %s: %v", fieldManager, err)
	}
}

// pod returns the live object as a pod.
func (a *applier) pod() corev1.Pod {
	a.t.Helper()
	raw, err := json.Marshal(a.live)
	if err != nil {
		a.t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		a.t.Fatal(err)
	}
	return pod
}

func podKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Pod") }

func TestApplyMergesContainersAndPortsByKey(t *testing.T) {
	a := newApplier(t, podKind(), "")
	a.mustApply("team-a", `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: web
    image: web:1
    ports:
    - {containerPort: 53, name: dns-tcp}
    - {containerPort: 80, name: http}
    env: [{name: A, value: "1"}]
`)
	a.mustApply("team-b", `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: web
    ports: [{containerPort: 53, protocol: UDP, name: dns-udp}]
    env: [{name: B, value: "2"}]
  - name: sidecar
    image: sidecar:1
`)
	spec := a.pod().Spec
	wantNames(t, "containers", spec.Containers, func(c corev1.Container) string { return c.Name }, "web", "sidecar")
	wantNames(t, "ports", spec.Containers[0].Ports, portName, "dns-tcp", "http", "dns-udp")
	wantNames(t, "env", spec.Containers[0].Env, func(e corev1.EnvVar) string { return e.Name }, "A", "B")
	if spec.Containers[0].Image != "web:1" {
		t.Errorf("image %q, team-b did not touch it", spec.Containers[0].Image)
	}

	// Fields that one applier no longer sends are removed; those that the other owns remain.
	a.mustApply("team-a", `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: web
    image: web:1
    ports: [{containerPort: 80, protocol: TCP, name: http}]
`)
	spec = a.pod().Spec
	wantNames(t, "ports", spec.Containers[0].Ports, portName, "http", "dns-udp")
	wantNames(t, "env", spec.Containers[0].Env, func(e corev1.EnvVar) string { return e.Name }, "B")
}

func TestApplyConflictsOnTheSameField(t *testing.T) {
	a := newApplier(t, podKind(), "")
	manifest := func(image string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: "` + image + `"}]}}`
	}
	a.mustApply("team-a", manifest("web:1"))
	a.mustApply("team-b", manifest("web:1")) // equal values are shared
	if err := a.apply("team-b", manifest("web:2")); !apierrors.IsConflict(err) {
		t.Errorf("another image by another applier: %v, want a conflict", err)
	}
}

func TestApplyMergesConditionsByType(t *testing.T) {
	a := newApplier(t, podKind(), "status")
	for _, conditionType := range []string{"example.com/A", "example.com/B"} {
		a.mustApply(conditionType, `{apiVersion: v1, kind: Pod, metadata: {name: web},
			status: {conditions: [{type: "`+conditionType+`", status: "True"}]}}`)
	}
	wantNames(t, "conditions", a.pod().Status.Conditions,
		func(c corev1.PodCondition) string { return string(c.Type) }, "example.com/A", "example.com/B")
}

func TestApplyRefusesUnknownFields(t *testing.T) {
	a := newApplier(t, podKind(), "")
	if err := a.apply("team-a", `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {container: []}}`); err == nil {
		t.Error("a misspelt field was applied")
	}
}

func portName(p corev1.ContainerPort) string { return p.Name }

// wantNames compares the names of a list's items, in their order.
func wantNames[T any](t *testing.T, what string, items []T, name func(T) string, want ...string) {
	t.Helper()
	var got []string
	for _, item := range items {
		got = append(got, name(item))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s %q, want %q", what, got, want)
	}
}
