package controlplane_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

func decodeJSON(t *testing.T, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
}

func TestPatchKinds(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	deployments := c.typed.AppsV1().Deployments(ns)
	must(deployments.Create(ctx, testDeployment("d"), metav1.CreateOptions{}))(t)

	// A strategic merge finds the container by its name, and keeps the first one.
	got := must(deployments.Patch(ctx, "d", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"example.com/side:1"}]}}}}`),
		metav1.PatchOptions{}))(t)
	if containers := got.Spec.Template.Spec.Containers; len(containers) != 2 || got.Generation != 2 {
		t.Errorf("after the strategic merge: generation %d, %v", got.Generation, containers)
	}
	got = must(deployments.Patch(ctx, "d", types.MergePatchType, []byte(`{"spec":{"paused":true,"replicas":null}}`),
		metav1.PatchOptions{}))(t)
	if !got.Spec.Paused || *got.Spec.Replicas != 1 {
		t.Errorf("after the merge: %v", got.Spec)
	}
	got = must(deployments.Patch(ctx, "d", types.JSONPatchType,
		[]byte(`[{"op":"test","path":"/spec/paused","value":true},{"op":"remove","path":"/spec/template/spec/containers/0"}]`), metav1.PatchOptions{}))(t)
	if containers := got.Spec.Template.Spec.Containers; len(containers) != 1 {
		t.Errorf("after the JSON patch: %v", containers)
	}
	if _, err := deployments.Patch(ctx, "d", types.JSONPatchType,
		[]byte(`[{"op":"test","path":"/spec/paused","value":false}]`), metav1.PatchOptions{}); err == nil {
		t.Error("a JSON patch whose test fails is accepted")
	}
	stale := []byte(`{"metadata":{"resourceVersion":"1"},"spec":{"paused":false}}`)
	if _, err := deployments.Patch(ctx, "d", types.MergePatchType, stale,
		metav1.PatchOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a patch of an old version: %v", err)
	}
	dry := must(deployments.Patch(ctx, "d", types.MergePatchType, []byte(`{"spec":{"paused":false}}`),
		metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))(t)
	if got := must(deployments.Get(ctx, "d", metav1.GetOptions{}))(t); dry.Spec.Paused || !got.Spec.Paused {
		t.Errorf("a dry run answered %v and left %v", dry.Spec.Paused, got.Spec.Paused)
	}
}

func TestServerSideApply(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	widgets := newCRD(t, c, "applied")
	deployment := func(n int64) map[string]any {
		return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "x"},
			"spec": map[string]any{
				"replicas": n,
				"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "c"}}},
				},
			}}
	}
	widget := func(n int64) map[string]any {
		return map[string]any{"apiVersion": widgets.Group + "/v1", "kind": "Applied", "metadata": map[string]any{"name": "x"},
			"spec": map[string]any{"replicas": n}}
	}
	for _, kind := range []struct {
		name     string
		resource schema.GroupVersionResource
		object   func(int64) map[string]any
	}{
		{"built-in", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, deployment},
		{"custom", widgets, widget},
	} {
		t.Run(kind.name, func(t *testing.T) {
			resource := c.dynamic.Resource(kind.resource).Namespace(ns)
			created := apply(t, resource, kind.object(1), "alice", false)
			again := apply(t, resource, kind.object(1), "alice", false)
			if created.GetResourceVersion() != again.GetResourceVersion() {
				t.Error("applying the same again writes")
			}
			_, err := resource.Apply(t.Context(), "x", &unstructured.Unstructured{Object: kind.object(2)},
				metav1.ApplyOptions{FieldManager: "bob"})
			if !apierrors.IsConflict(err) {
				t.Errorf("taking over alice's field: %v", err)
			}
			forced := apply(t, resource, kind.object(3), "bob", true)
			if n, _, _ := unstructured.NestedInt64(forced.Object, "spec", "replicas"); n != 3 {
				t.Errorf("replicas %d after the forced apply", n)
			}
			bob := forced.GetManagedFields()[slices.IndexFunc(forced.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
				return e.Manager == "bob"
			})]
			if !strings.Contains(bob.FieldsV1.GetRawString(), "f:replicas") {
				t.Errorf("bob owns %s", bob.FieldsV1.GetRawString())
			}
		})
	}
}

func apply(t *testing.T, resource dynamic.ResourceInterface, object map[string]any, manager string,
	force bool) *unstructured.Unstructured {
	t.Helper()
	return must(resource.Apply(t.Context(), "x", &unstructured.Unstructured{Object: object},
		metav1.ApplyOptions{FieldManager: manager, Force: force}))(t)
}

// Applying a StatefulSet whose claim templates leave out defaults again writes nothing, also when managedFields has
// an older time. The list of templates is atomic: the second apply replaces it with one without the defaults.
func TestApplyAgainWithoutDefaults(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	sets := c.dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1",
		Resource: "statefulsets"}).Namespace(newNamespace(t, c))
	const set = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"x"},"spec":{"serviceName":"x",` +
		selected + `,
		"volumeClaimTemplates":[{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}}`
	object := map[string]any{}
	decodeJSON(t, []byte(set), &object)
	created := apply(t, sets, object, "alice", false)
	entries := created.GetManagedFields()
	entries[0].Time = &metav1.Time{Time: entries[0].Time.Add(-time.Hour)}
	created.SetManagedFields(entries)
	created.SetLabels(map[string]string{"a": "b"}) // a change of times alone is not written
	older := must(sets.Update(t.Context(), created, metav1.UpdateOptions{FieldManager: "bob"}))(t)
	if at := older.GetManagedFields()[0].Time; !at.Equal(entries[0].Time) {
		t.Fatalf("the update wrote the time %v instead of %v", at, entries[0].Time)
	}
	again := apply(t, sets, object, "alice", false)
	if again.GetResourceVersion() != older.GetResourceVersion() {
		t.Errorf("version %s was written at %v after %s", again.GetResourceVersion(), again.GetManagedFields()[0].Time,
			older.GetResourceVersion())
	}
}
