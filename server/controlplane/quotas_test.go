package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// limits creates a quota in a namespace, given as names and values.
func limits(t *testing.T, c clients, ns, name string, pairs ...string) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: quantities(pairs...)}}
	must(c.typed.CoreV1().ResourceQuotas(ns).Create(t.Context(), q, metav1.CreateOptions{}))(t)
}

// waitUsed waits for the usage in a quota's status.
func waitUsed(t *testing.T, c clients, ns, name string, pairs ...string) {
	t.Helper()
	want := quantities(pairs...)
	await.State(t, "usage of the quota "+name, func() (bool, string) {
		q, err := c.typed.CoreV1().ResourceQuotas(ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if len(q.Status.Used) != len(want) {
			return false, fmt.Sprint(q.Status)
		}
		for name, quantity := range want {
			if used := q.Status.Used[name]; used.Cmp(quantity) != 0 {
				return false, fmt.Sprint(q.Status)
			}
		}
		return true, ""
	})
}

// wantExceeded fails the test unless an error is the refusal of a quota.
func wantExceeded(t *testing.T, err error, want string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("the write is answered with %v, want %s", err, want)
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A quota counts what its namespace has, refuses what exceeds it, and follows deletions, pods that end, and changes of
// its limits.
func TestQuotas(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	ctx := t.Context()
	ns, other := newNamespace(t, c), newNamespace(t, c)
	maps, pods := c.typed.CoreV1().ConfigMaps(ns), c.typed.CoreV1().Pods(ns)
	must(maps.Create(ctx, configMap("before"), metav1.CreateOptions{}))(t)
	await.State(t, "the namespace's own config map", func() (bool, string) {
		_, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	limits(t, c, ns, "q", "configmaps", "3", "pods", "2", "requests.cpu", "1", "count/secrets", "1")
	waitUsed(t, c, ns, "q", "configmaps", "2", "pods", "0", "requests.cpu", "0", "count/secrets", "0")

	must(maps.Create(ctx, configMap("third"), metav1.CreateOptions{}))(t)
	_, err := maps.Create(ctx, configMap("fourth"), metav1.CreateOptions{})
	wantExceeded(t, err,
		`configmaps "fourth" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=3, limited: configmaps=3`)
	must(c.typed.CoreV1().ConfigMaps(other).Create(ctx, configMap("fourth"), metav1.CreateOptions{}))(t)

	_, err = pods.Create(ctx, podWith("plain", corev1.ResourceRequirements{}), metav1.CreateOptions{})
	wantExceeded(t, err, `pods "plain" is forbidden: failed quota: q: must specify requests.cpu for: c`)
	half := corev1.ResourceRequirements{Requests: quantities("cpu", "500m")}
	for _, name := range []string{"one", "two"} {
		must(pods.Create(ctx, podWith(name, half), metav1.CreateOptions{}))(t)
	}
	_, err = pods.Create(ctx, podWith("three", half), metav1.CreateOptions{})
	wantExceeded(t, err,
		"exceeded quota: q, requested: pods=1,requests.cpu=500m, used: pods=2,requests.cpu=1, limited: pods=2,requests.cpu=1")
	waitUsed(t, c, ns, "q", "configmaps", "3", "pods", "2", "requests.cpu", "1", "count/secrets", "0")

	one := must(pods.Get(ctx, "one", metav1.GetOptions{}))(t)
	one.Status.Phase = corev1.PodSucceeded
	must(pods.UpdateStatus(ctx, one, metav1.UpdateOptions{}))(t)
	waitUsed(t, c, ns, "q", "configmaps", "3", "pods", "1", "requests.cpu", "500m", "count/secrets", "0")
	must(pods.Create(ctx, podWith("three", half), metav1.CreateOptions{}))(t)
	if err := maps.Delete(ctx, "third", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitUsed(t, c, ns, "q", "configmaps", "2", "pods", "2", "requests.cpu", "1", "count/secrets", "0")
	must(c.typed.CoreV1().ResourceQuotas(ns).Patch(ctx, "q", types.MergePatchType,
		[]byte(`{"spec":{"hard":{"pods":null,"requests.cpu":null,"services":"1"}}}`), metav1.PatchOptions{}))(t)
	waitUsed(t, c, ns, "q", "configmaps", "2", "services", "0", "count/secrets", "0")

	// What the plugin has counted of a write that fails later is corrected.
	_, err = c.typed.CoreV1().ConfigMaps(ns).Create(ctx, configMap("before"), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second object is answered with %v", err)
	}
	waitUsed(t, c, ns, "q", "configmaps", "2", "services", "0", "count/secrets", "0")
}

// A quota of a custom resource counts from the definition on, also after it was deleted and created again.
func TestQuotaOfCustomResources(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	ns := newNamespace(t, c)
	limits(t, c, ns, "q", "count/gears.quota.example.com", "1", "configmaps", "10")
	await.State(t, "the known part of the status", func() (bool, string) {
		q := must(c.typed.CoreV1().ResourceQuotas(ns).Get(t.Context(), "q", metav1.GetOptions{}))(t)
		_, known := q.Status.Used["configmaps"]
		_, unknown := q.Status.Used["count/gears.quota.example.com"]
		return len(q.Status.Hard) == 2 && known && !unknown, fmt.Sprint(q.Status)
	})
	gears := c.dynamic.Resource(schema.GroupVersionResource{Group: "quota.example.com", Version: "v1",
		Resource: "gears"}).Namespace(ns)
	gear := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "quota.example.com/v1", "kind": "Gear",
			"metadata": map[string]any{"name": name}}}
	}
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	for range 2 {
		must(definitions.Create(t.Context(), gearDefinition(), metav1.CreateOptions{}))(t)
		waitUsed(t, c, ns, "q", "count/gears.quota.example.com", "0", "configmaps", "1")
		await.State(t, "the first gear", func() (bool, string) {
			_, err := gears.Create(t.Context(), gear("one"), metav1.CreateOptions{})
			return err == nil, fmt.Sprint(err)
		})
		_, err := gears.Create(t.Context(), gear("two"), metav1.CreateOptions{})
		wantExceeded(t, err,
			`exceeded quota: q, requested: count/gears.quota.example.com=1, used: count/gears.quota.example.com=1, limited: count/gears.quota.example.com=1`)
		if err := definitions.Delete(t.Context(), "gears.quota.example.com", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.State(t, "the end of the definition", func() (bool, string) {
			_, err := definitions.Get(t.Context(), "gears.quota.example.com", metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
		waitUsed(t, c, ns, "q", "count/gears.quota.example.com", "0", "configmaps", "1")
	}
}

func gearDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gears.quota.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "quota.example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "gears", Kind: "Gear"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object"}},
			}},
		},
	}
}

// Without controllers nothing computes a status, and admission enforces the one that a client has written, with both
// storages.
func TestQuotaWithoutControllers(t *testing.T) {
	t.Parallel()
	for _, kind := range []controlplane.Storage{controlplane.StoreStorage, controlplane.UpstreamStorage} {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, start(t, controlplane.Options{Storage: kind}).RESTConfig())
			ns := newNamespace(t, c)
			quotas, maps := c.typed.CoreV1().ResourceQuotas(ns), c.typed.CoreV1().ConfigMaps(ns)
			limits(t, c, ns, "q", "configmaps", "1")
			must(maps.Create(t.Context(), configMap("before"), metav1.CreateOptions{}))(t)
			q := must(quotas.Get(t.Context(), "q", metav1.GetOptions{}))(t)
			if len(q.Status.Hard) > 0 {
				t.Errorf("the quota has the status %v", q.Status)
			}
			q.Status = corev1.ResourceQuotaStatus{Hard: q.Spec.Hard,
				Used: corev1.ResourceList{"configmaps": resource.MustParse("0")}}
			must(quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{}))(t)
			must(maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}))(t)
			must(maps.Create(t.Context(), configMap("one"), metav1.CreateOptions{}))(t)
			_, err := maps.Create(t.Context(), configMap("two"), metav1.CreateOptions{})
			wantExceeded(t, err, "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
			waitUsed(t, c, ns, "q", "configmaps", "1")
		})
	}
}
