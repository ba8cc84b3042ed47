package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// namespaceCondition returns one condition of a namespace, and "" if it has none of that type.
func namespaceCondition(ns *corev1.Namespace, of corev1.NamespaceConditionType) string {
	for _, c := range ns.Status.Conditions {
		if c.Type == of {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

// A terminating namespace says what it waits for. What its pods read, and what guards them, stays until they are gone.
func TestPodsGoBeforeTheRest(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	pods, maps := c.typed.CoreV1().Pods(ns), c.typed.CoreV1().ConfigMaps(ns)
	pod := testPod("p")
	pod.Finalizers = []string{"example.com/held"}
	must(pods.Create(ctx, pod, metav1.CreateOptions{}))(t)
	must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "read"}}, metav1.CreateOptions{}))(t)
	if err := c.typed.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitCondition(t, c, ns, corev1.NamespaceContentRemaining,
		"True SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances")
	waitCondition(t, c, ns, corev1.NamespaceFinalizersRemaining, "True SomeFinalizersRemain: "+
		"Some content in the namespace has finalizers remaining: example.com/held in 1 resource instances")
	if _, err := maps.Get(ctx, "read", metav1.GetOptions{}); err != nil {
		t.Errorf("the config map went before the pod: %v", err)
	}
	if _, err := pods.Patch(ctx, "p", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitNamespaceDeleted(t, c, ns)
}

func waitCondition(t *testing.T, c clients, namespace string, of corev1.NamespaceConditionType, want string) {
	t.Helper()
	await.State(t, "the condition "+string(of), func() (bool, string) {
		ns, err := c.typed.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		got := namespaceCondition(ns, of)
		return got == want, got
	})
}

// Objects of a terminating namespace do not wait for what they own: that goes, too, and may wait for them.
func TestNamespaceDeletesInTheBackground(t *testing.T) {
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	maps := c.typed.CoreV1().ConfigMaps(ns)
	owner := must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner",
		Finalizers: []string{metav1.FinalizerDeleteDependents}}}, metav1.CreateOptions{}))(t)
	must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned",
		Finalizers: []string{"example.com/until-the-owner-is-gone"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID,
			BlockOwnerDeletion: new(true)}},
	}}, metav1.CreateOptions{}))(t)
	if err := c.typed.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the owner is gone", func() (bool, string) {
		got, err := maps.Get(ctx, "owner", metav1.GetOptions{})
		if err == nil {
			return false, strings.Join(got.Finalizers, ", ")
		}
		return apierrors.IsNotFound(err), err.Error()
	})
	owned := must(maps.Get(ctx, "owned", metav1.GetOptions{}))(t)
	if !slices.Equal(owned.Finalizers, []string{"example.com/until-the-owner-is-gone"}) {
		t.Errorf("the finalizers of what it owned: %q", owned.Finalizers)
	}
	if _, err := maps.Patch(ctx, "owned", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitNamespaceDeleted(t, c, ns)
}

// withoutBroken is a server whose group broken.example.com is listed and does not answer.
type withoutBroken struct{ *fake.Clientset }

func (c withoutBroken) Discovery() discovery.DiscoveryInterfaces {
	return brokenDiscovery{c.Clientset.Discovery().(*fakediscovery.FakeDiscovery)}
}

type brokenDiscovery struct{ *fakediscovery.FakeDiscovery }

func (d brokenDiscovery) ServerResourcesForGroupVersionWithContext(ctx context.Context, version string) (
	*metav1.APIResourceList, error) {
	if strings.HasPrefix(version, "broken.example.com/") {
		return nil, errors.New("unavailable")
	}
	return d.FakeDiscovery.ServerResourcesForGroupVersionWithContext(ctx, version)
}

// A resource that cannot be discovered or deleted keeps no other one, and the namespace says which it is.
func TestContentThatCannotBeDeleted(t *testing.T) {
	client := fake.NewClientset(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: new(metav1.Now())},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
	})
	verbs := metav1.Verbs{"list", "deletecollection"}
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Namespaced: true, Kind: "ConfigMap", Verbs: verbs},
		{Name: "secrets", Namespaced: true, Kind: "Secret", Verbs: verbs},
		{Name: "services", Namespaced: true, Kind: "Service", Verbs: verbs},
	}}, {GroupVersion: "broken.example.com/v1"}}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := metadatafake.NewSimpleMetadataClient(scheme)
	deleted := map[string]bool{}
	objects.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Resource == "secrets" {
			return true, nil, errors.New("no conversion")
		}
		items := []runtime.Object{&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "o"}}}
		if deleted[action.GetResource().Resource] {
			items = nil
		}
		list := &metav1.List{}
		for _, item := range items {
			list.Items = append(list.Items, runtime.RawExtension{Object: item})
		}
		return true, list, nil
	})
	objects.PrependReactor("delete-collection", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deleted[action.GetResource().Resource] = true
		return true, nil, nil
	})
	err := controlplane.CleanNamespace(t.Context(), withoutBroken{client}, objects, "n")
	if err == nil || !deleted["configmaps"] || !deleted["services"] {
		t.Errorf("deleted %v: %v", deleted, err)
	}
	ns := must(client.CoreV1().Namespaces().Get(t.Context(), "n", metav1.GetOptions{}))(t)
	if got := namespaceCondition(ns, corev1.NamespaceDeletionContentFailure); got != "True ContentDeletionFailed: "+
		"Failed to delete all resource types, 1 remaining: delete secrets: no conversion" {
		t.Errorf("the condition of its contents: %s", got)
	}
	if got := namespaceCondition(ns, corev1.NamespaceDeletionDiscoveryFailure); !strings.Contains(got, "unavailable") {
		t.Errorf("the condition of discovery: %s", got)
	}
}
