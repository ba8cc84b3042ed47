package controlplane_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

func TestMissingNamespace(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	_, err := c.typed.CoreV1().Pods("missing").Create(t.Context(), testPod("p"), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) || err.Error() != `namespaces "missing" not found` {
		t.Errorf("creating in a missing namespace: %v", err)
	}
	err = c.typed.CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("deleting default: %v", err)
	}
}

func TestNamespaceDeletionDeletesContents(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns, other := newNamespace(t, c), newNamespace(t, c)
	gvr := newCRD(t, c, "contents")
	ctx := t.Context()
	for _, in := range []string{ns, other} {
		must(c.typed.CoreV1().ConfigMaps(in).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
			metav1.CreateOptions{}))(t)
		must(c.typed.AppsV1().Deployments(in).Create(ctx, testDeployment("d"), metav1.CreateOptions{}))(t)
		must(c.dynamic.Resource(gvr).Namespace(in).Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": gvr.GroupVersion().String(), "kind": "Contents", "metadata": map[string]any{"name": "x"},
		}}, metav1.CreateOptions{}))(t)
	}
	if err := c.typed.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitNamespaceDeleted(t, c, ns)
	if n := len(must(c.typed.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}))(t).Items); n != 0 {
		t.Errorf("%d config maps outlived their namespace", n)
	}
	if n := len(must(c.dynamic.Resource(gvr).Namespace(ns).List(ctx, metav1.ListOptions{}))(t).Items); n != 0 {
		t.Errorf("%d custom resources outlived their namespace", n)
	}
	if n := len(must(c.typed.AppsV1().Deployments(other).List(ctx, metav1.ListOptions{}))(t).Items); n != 1 {
		t.Error("another namespace lost its contents")
	}
}

func TestFinalizersDelayNamespaceDeletion(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	finalized := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "finalized",
		Finalizers: []string{"example.com/hold"}}}
	must(c.typed.CoreV1().ConfigMaps(ns).Create(ctx, finalized, metav1.CreateOptions{}))(t)
	if err := c.typed.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the contents are asked to go", func() (bool, string) {
		got, err := c.typed.CoreV1().ConfigMaps(ns).Get(ctx, "finalized", metav1.GetOptions{})
		return err == nil && got.DeletionTimestamp != nil, "the config map isn't marked"
	})
	if got := must(c.typed.CoreV1().Namespaces().Get(ctx, ns,
		metav1.GetOptions{}))(t); got.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the namespace is %s", got.Status.Phase)
	}
	_, err := c.typed.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}},
		metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("creating in a terminating namespace: %v", err)
	}
	got := must(c.typed.CoreV1().ConfigMaps(ns).Get(ctx, "finalized", metav1.GetOptions{}))(t)
	got.Finalizers = nil
	must(c.typed.CoreV1().ConfigMaps(ns).Update(ctx, got, metav1.UpdateOptions{}))(t)
	waitNamespaceDeleted(t, c, ns)
}

func waitNamespaceDeleted(t *testing.T, c clients, name string) {
	t.Helper()
	await.State(t, "the namespace is gone", func() (bool, string) {
		ns, err := c.typed.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			return false, string(ns.Status.Phase)
		}
		return apierrors.IsNotFound(err), err.Error()
	})
}

// A custom resource that discovery does not have yet goes with its namespace, too. One that it has is not deleted
// twice.
func TestNamespaceHasNewResources(t *testing.T) {
	client := fake.NewClientset()
	client.Resources = []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "configmaps", Namespaced: true, Verbs: metav1.Verbs{"list", "deletecollection"}},
			{Name: "bindings", Namespaced: true, Verbs: metav1.Verbs{"create"}},
		}},
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{
			{Name: "old", Namespaced: true, Verbs: metav1.Verbs{"list", "deletecollection"}},
		}},
	}
	found := must(controlplane.DeletableResources(client, []schema.GroupVersionResource{
		{Group: "example.com", Version: "v1", Resource: "old"}, {Group: "example.com", Version: "v1", Resource: "new"},
	}))(t)
	var names []string
	for _, resource := range found {
		names = append(names, resource.String())
	}
	slices.Sort(names)
	want := []string{"/v1, Resource=configmaps", "example.com/v1, Resource=new", "example.com/v2, Resource=old"}
	if !slices.Equal(names, want) {
		t.Errorf("deletes %q, want %q", names, want)
	}
}
