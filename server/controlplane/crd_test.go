package controlplane_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// groups counts the groups of newCRD.
var groups atomic.Int64

// newCRD creates a definition of a namespaced kind in a group of its own.
func newCRD(t *testing.T, c clients, plural string,
	more ...func(*apiextensionsv1.CustomResourceDefinitionVersion)) schema.GroupVersionResource {
	t.Helper()
	return newCRDIn(t, c, fmt.Sprintf("test%d.example.com", groups.Add(1)), plural, more...)
}

// newCRDIn creates the definition in a group.
func newCRDIn(t *testing.T, c clients, group, plural string,
	more ...func(*apiextensionsv1.CustomResourceDefinitionVersion)) schema.GroupVersionResource {
	t.Helper()
	minimum := 1.0
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: strings.ToUpper(plural[:1]) + plural[1:]},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"size": {Type: "integer", Minimum: &minimum, Default: &apiextensionsv1.JSON{Raw: []byte("3")},
								Description: "How big."},
							"replicas": {Type: "integer"},
							"due":      {Type: "string"},
						}},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"replicas": {Type: "integer"}}},
					},
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
					Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas",
						StatusReplicasPath: ".status.replicas"},
				},
				AdditionalPrinterColumns: []apiextensionsv1.CustomResourceColumnDefinition{
					{Name: "Size", Type: "integer", JSONPath: ".spec.size"}, {Name: "Due", Type: "date", JSONPath: ".spec.due"},
				},
			}},
		},
	}
	for _, change := range more {
		change(&crd.Spec.Versions[0])
	}
	establish(t, c, crd)
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
	await.State(t, "the kind is served", func() (bool, string) {
		_, err := c.dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		return err == nil, "it isn't found"
	})
	return resource
}

// establish creates a definition, and waits until it is established.
func establish(t *testing.T, c clients, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	must(definitions.Create(t.Context(), crd, metav1.CreateOptions{}))(t)
	await.State(t, "the kind is established", func() (bool, string) {
		got, err := definitions.Get(t.Context(), crd.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, condition := range got.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true, ""
			}
		}
		return false, "no condition Established"
	})
}

func TestCustomResources(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	gvr := newCRD(t, c, "widgets")
	widgets := c.dynamic.Resource(gvr).Namespace(ns)
	ctx := t.Context()
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Widgets", "metadata": map[string]any{"name": "w"},
		"spec": map[string]any{"unknown": true, "replicas": int64(2)}, "status": map[string]any{"replicas": int64(9)},
	}}
	created := must(widgets.Create(ctx, widget, metav1.CreateOptions{}))(t)
	spec, _, _ := unstructured.NestedMap(created.Object, "spec")
	if spec["size"] != int64(3) || spec["unknown"] != nil || created.Object["status"] != nil {
		t.Errorf("defaulted, pruned and without status it should be, and is %v", created.Object)
	}
	bad := widget.DeepCopy()
	bad.SetName("bad")
	unstructured.SetNestedField(bad.Object, int64(0), "spec", "size")
	if _, err := widgets.Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an invalid object: %v", err)
	}
	unstructured.SetNestedField(created.Object, int64(5), "status", "replicas")
	updated := must(widgets.UpdateStatus(ctx, created, metav1.UpdateOptions{}))(t)
	if updated.GetGeneration() != 1 {
		t.Errorf("status raised the generation to %d", updated.GetGeneration())
	}
	scale := must(widgets.Get(ctx, "w", metav1.GetOptions{}, "scale"))(t)
	if n, _, _ := unstructured.NestedInt64(scale.Object, "status", "replicas"); n != 5 {
		t.Errorf("the scale is %v", scale.Object)
	}
	item := must(widgets.List(ctx, metav1.ListOptions{}))(t).Items[0]
	if item.GetKind() != "Widgets" {
		t.Errorf("an item of a custom list doesn't say its kind: %v", item.Object)
	}
	var table metav1.Table
	err := c.typed.CoreV1().RESTClient().Get().AbsPath("/apis", gvr.Group, "v1", "namespaces", ns, "widgets").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Into(&table)
	if err != nil || len(table.ColumnDefinitions) != 3 || table.ColumnDefinitions[1].Name != "Size" {
		t.Errorf("the table has the columns %v, %v", table.ColumnDefinitions, err)
	}
}

// A new kind appears in both forms of discovery and both OpenAPI documents, and disappears after its deletion.
func TestNewKindIsDiscovered(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	gvr := newCRD(t, c, "gadgets")
	rest := c.typed.CoreV1().RESTClient()
	shows := func(path, accept, text string) func() (bool, string) {
		return func() (bool, string) {
			raw, err := rest.Get().AbsPath(path).SetHeader("Accept", accept).DoRaw(t.Context())
			return err == nil && strings.Contains(string(raw), text), path + " doesn't show it"
		}
	}
	hides := func(path, accept, text string) func() (bool, string) {
		shown := shows(path, accept, text)
		return func() (bool, string) {
			ok, _ := shown()
			return !ok, path + " still shows it"
		}
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	documents := []struct{ path, accept, text string }{
		{"/apis", "application/json", gvr.Group},
		{"/apis", aggregated, gvr.Group},
		{"/openapi/v2", "application/json", "/apis/" + gvr.Group + "/v1"},
		{"/openapi/v3", "application/json", "apis/" + gvr.Group + "/v1"},
	}
	for _, d := range documents {
		await.State(t, "the new kind is in "+d.path, shows(d.path, d.accept, d.text))
		if ok, why := shows(d.path, d.accept, "apps")(); !ok {
			t.Errorf("and the built-in kinds are not: %s", why)
		}
	}
	await.State(t, "its fields are explained", shows("/openapi/v3/apis/"+gvr.Group+"/v1", "application/json", "How big."))
	if ok, why := shows("/openapi/v3", "application/json", "apis/apiextensions.k8s.io/v1")(); !ok {
		t.Error("definitions themselves are not described:", why)
	}
	if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "gadgets."+gvr.Group,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		await.State(t, "the removed kind is out of "+d.path, hides(d.path, d.accept, d.text))
	}
}

func TestDeletedDefinitionDeletesItsObjects(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	gvr := newCRD(t, c, "things")
	things := dynamic.ResourceInterface(c.dynamic.Resource(gvr).Namespace(ns))
	must(things.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Things", "metadata": map[string]any{"name": "t"},
	}}, metav1.CreateOptions{}))(t)
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	if err := definitions.Delete(t.Context(), "things."+gvr.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the definition is gone", func() (bool, string) {
		_, err := definitions.Get(t.Context(), "things."+gvr.Group, metav1.GetOptions{})
		return apierrors.IsNotFound(err), "it is still there"
	})
	newCRDIn(t, c, gvr.Group, "things")
	if list := must(things.List(t.Context(), metav1.ListOptions{}))(t); len(list.Items) != 0 {
		t.Errorf("the kind came back with %v", list.Items)
	}
}

// The cache by which apiextensions-apiserver delays creates by two seconds has an older time than the definition, so
// that it does not delay any. Clients read the true one, also after a controller has written the status of what it has
// from the cache. A server on an etcd of others delays creates, as kube-apiserver does.
func TestCreatesAreNotDelayed(t *testing.T) {
	t.Parallel()
	onEtcd := start(t, controlplane.Options{TemporaryEtcd: true})
	for _, test := range []struct {
		name   string
		server func() *controlplane.Server
		delays bool
	}{
		{"memory", func() *controlplane.Server { return start(t, controlplane.Options{}).Server }, false},
		{"embedded etcd", func() *controlplane.Server { return onEtcd.Server }, false},
		{"others' etcd", func() *controlplane.Server {
			return start(t, controlplane.Options{Etcd: onEtcd.EtcdCluster(), Adopt: true}).Server
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := test.server()
			c := connect(t, server.RESTConfig())
			gvr := newCRD(t, c, "widgets")
			definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
			established := func(d *apiextensionsv1.CustomResourceDefinition) time.Time {
				condition := apihelpers.FindCRDCondition(d, apiextensionsv1.Established)
				if condition == nil {
					return time.Time{}
				}
				return condition.LastTransitionTime.Time
			}
			truth := must(definitions.Get(t.Context(), gvr.GroupResource().String(), metav1.GetOptions{}))(t)
			if established(truth).Before(truth.CreationTimestamp.Time) {
				t.Errorf("established at %v, created at %v", established(truth), truth.CreationTimestamp)
			}
			await.State(t, "the cache has the condition", func() (bool, string) {
				d, err := server.CachedDefinition(truth.Name)
				return err == nil && !established(d).IsZero(), fmt.Sprint(err)
			})
			cached := established(must(server.CachedDefinition(truth.Name))(t))
			if delays := !cached.Before(truth.CreationTimestamp.Add(-time.Second)); delays != test.delays {
				t.Errorf("the cache has it established at %v: creates are delayed: %t, want %t", cached, delays, test.delays)
			}
			// An object with a finalizer lets the definition stay, with a condition more.
			o := must(c.dynamic.Resource(gvr).Namespace("default").Create(t.Context(),
				&unstructured.Unstructured{Object: map[string]any{
					"apiVersion": gvr.GroupVersion().String(), "kind": "Widgets", "metadata": map[string]any{"name": "a",
						"finalizers": []any{"example.com/f"}},
				}}, metav1.CreateOptions{}))(t)
			if err := definitions.Delete(t.Context(), truth.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			await.State(t, "a controller deletes the objects", func() (bool, string) {
				d := must(definitions.Get(t.Context(), truth.Name, metav1.GetOptions{}))(t)
				if !established(d).Equal(established(truth)) {
					t.Fatalf("the definition is established at %v, and was at %v", established(d), established(truth))
				}
				terminating := apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating)
				return terminating != nil && terminating.Reason != "InstanceDeletionPending", fmt.Sprint(terminating)
			})
			must(c.dynamic.Resource(gvr).Namespace("default").Patch(t.Context(), o.GetName(), types.MergePatchType,
				[]byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}))(t)
		})
	}
}

// A definition is served from the moment when its names are accepted, before it is established. Creates are not delayed
// then, either.
func TestCreatesBeforeEstablished(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]controlplane.Options{"memory": {}, "embedded etcd": {TemporaryEtcd: true}} {
		t.Run(name, func(t *testing.T) {
			const definition = "widgets.before.example.com"
			installing := func(d *apiextensionsv1.CustomResourceDefinition) bool {
				return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) &&
					apihelpers.IsCRDConditionFalse(d, apiextensionsv1.Established)
			}
			var running atomic.Pointer[controlplane.Server]
			establish := make(chan struct{})
			options.Middleware = func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if server := running.Load(); server != nil && r.Method == http.MethodPut &&
						strings.HasSuffix(r.URL.Path, definition+"/status") {
						if d, err := server.CachedDefinition(definition); err == nil && installing(d) {
							<-establish
						}
					}
					h.ServeHTTP(w, r)
				})
			}
			server := start(t, options)
			running.Store(server.Server)
			defer close(establish)
			c := connect(t, server.RESTConfig())
			created := must(c.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
				&apiextensionsv1.CustomResourceDefinition{
					ObjectMeta: metav1.ObjectMeta{Name: definition},
					Spec: apiextensionsv1.CustomResourceDefinitionSpec{
						Group: "before.example.com", Scope: apiextensionsv1.NamespaceScoped,
						Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
						Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
							Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
								Type: "object"}},
						}},
					},
				}, metav1.CreateOptions{}))(t)
			var cached *apiextensionsv1.CustomResourceDefinition
			await.State(t, "the names are accepted", func() (bool, string) {
				var err error
				cached, err = server.CachedDefinition(definition)
				return err == nil && installing(cached), fmt.Sprint(cached, err)
			})
			// A create is delayed if this time is less than two seconds ago.
			if since := apihelpers.FindCRDCondition(cached, apiextensionsv1.Established).LastTransitionTime; !since.Time.Before(
				created.CreationTimestamp.Add(-time.Hour)) {
				t.Errorf("in the cache the definition is not established since %v: creates are delayed", since)
			}
			gvr := schema.GroupVersionResource{Group: "before.example.com", Version: "v1", Resource: "widgets"}
			must(c.dynamic.Resource(gvr).Namespace("default").Create(t.Context(),
				&unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "before.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"},
				}}, metav1.CreateOptions{}))(t)
		})
	}
}
