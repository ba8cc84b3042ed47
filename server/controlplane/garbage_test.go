package controlplane_test

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// family is config maps of one namespace that own each other.
type family struct {
	t    *testing.T
	c    clients
	home string
}

func newFamily(t *testing.T, c clients) family { return family{t, c, newNamespace(t, c)} }

// add creates a config map with owners; an owner that begins with ! is blocked by it.
func (f family) add(name string, owners ...string) *corev1.ConfigMap {
	f.t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, owner := range owners {
		owner, blocks := strings.CutPrefix(owner, "!")
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner,
			UID: f.uid(owner), BlockOwnerDeletion: &blocks})
	}
	return must(f.c.typed.CoreV1().ConfigMaps(f.home).Create(f.t.Context(), m, metav1.CreateOptions{}))(f.t)
}

// uid returns the UID of a config map; another one if it does not exist.
func (f family) uid(name string) types.UID {
	f.t.Helper()
	m, err := f.c.typed.CoreV1().ConfigMaps(f.home).Get(f.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return types.UID("missing-" + name)
	}
	return must(m, err)(f.t).UID
}

func (f family) delete(name string, propagation metav1.DeletionPropagation) {
	f.t.Helper()
	if err := f.c.typed.CoreV1().ConfigMaps(f.home).Delete(f.t.Context(), name,
		metav1.DeleteOptions{PropagationPolicy: &propagation}); err != nil {
		f.t.Fatal(err)
	}
}

// state returns the config maps, each with its owners, and * if it is being deleted.
func (f family) state() string {
	f.t.Helper()
	var found []string
	for _, m := range must(f.c.typed.CoreV1().ConfigMaps(f.home).List(f.t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}))(f.t).Items {
		text := m.Name
		for _, owner := range m.OwnerReferences {
			text += "<" + owner.Name
		}
		if m.DeletionTimestamp != nil {
			text += "*"
		}
		found = append(found, text)
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

func (f family) becomes(want string) {
	f.t.Helper()
	await.State(f.t, "the objects are "+want, func() (bool, string) {
		got := f.state()
		return got == want, got
	})
}

func (f family) hold(name, finalizers string) {
	f.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"finalizers":%s}}`, finalizers)
	must(f.c.typed.CoreV1().ConfigMaps(f.home).Patch(f.t.Context(), name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}))(f.t)
}

func TestGarbage(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	t.Run("background", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		f.add("b", "a")
		f.add("c", "b")
		f.add("other")
		f.add("shared", "a", "other")
		f.delete("a", metav1.DeletePropagationBackground)
		f.becomes("other shared<other")
	})
	t.Run("orphan", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		f.add("b", "a")
		f.add("c", "b")
		f.delete("a", metav1.DeletePropagationOrphan)
		f.becomes("b c<b")
	})
	t.Run("foreground", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		f.add("b", "!a")
		f.add("c", "!b")
		f.add("loose", "a")
		f.hold("c", `["example.com/hold"]`)
		f.delete("a", metav1.DeletePropagationForeground)
		f.becomes("a* b<a* c<b*") // b waits for c, and a for b, but not for loose
		f.hold("c", "null")
		f.becomes("")
	})
	t.Run("in the foreground without blocking", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		f.add("held", "a")
		f.hold("held", `["example.com/hold"]`)
		f.delete("a", metav1.DeletePropagationForeground)
		f.becomes("held<a*")
		f.hold("held", "null")
		f.becomes("")
	})
	t.Run("unblocked by a change of the reference", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		f.add("b", "!a")
		f.hold("b", `["example.com/hold"]`)
		f.delete("a", metav1.DeletePropagationForeground)
		f.becomes("a* b<a*")
		must(c.typed.CoreV1().ConfigMaps(f.home).Patch(t.Context(), "b", types.MergePatchType,
			[]byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{}))(t)
		f.becomes("b*")
		f.hold("b", "null")
		f.becomes("")
	})
	t.Run("in a circle", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		b := f.add("b", "!a")
		patch := fmt.Sprintf(
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":%q,"blockOwnerDeletion":true}]}}`, b.UID)
		must(c.typed.CoreV1().ConfigMaps(f.home).Patch(t.Context(), "a", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}))(t)
		f.delete("a", metav1.DeletePropagationForeground)
		f.becomes("")
	})
	t.Run("owners that never existed", func(t *testing.T) {
		f := newFamily(t, c)
		f.add("a")
		f.add("child", "missing")
		f.add("shared", "missing", "a")
		f.becomes("a shared<a")
	})
	t.Run("owners in another namespace", func(t *testing.T) {
		f, elsewhere := newFamily(t, c), newFamily(t, c)
		owner := elsewhere.add("a")
		stray := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stray",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: owner.UID}}}}
		must(c.typed.CoreV1().ConfigMaps(f.home).Create(t.Context(), stray, metav1.CreateOptions{}))(t)
		f.becomes("")
		if got := elsewhere.state(); got != "a" {
			t.Errorf("the other namespace has %q", got)
		}
	})
	t.Run("owners of another name or kind", func(t *testing.T) {
		f := newFamily(t, c)
		owner := f.add("a")
		for name, reference := range map[string]metav1.OwnerReference{
			"right": {APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: owner.UID},
			"name":  {APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: owner.UID},
			"kind":  {APIVersion: "v1", Kind: "Secret", Name: "a", UID: owner.UID},
		} {
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
				OwnerReferences: []metav1.OwnerReference{reference}}}
			must(c.typed.CoreV1().ConfigMaps(f.home).Create(t.Context(), m, metav1.CreateOptions{}))(t)
		}
		f.becomes("a right<a")
	})
	t.Run("owners of a cluster", func(t *testing.T) {
		f := newFamily(t, c)
		node := must(c.typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.home}},
			metav1.CreateOptions{}))(t)
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}}}
		must(c.typed.CoreV1().ConfigMaps(f.home).Create(t.Context(), m, metav1.CreateOptions{}))(t)
		if err := c.typed.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.becomes("")
	})
}

// Custom resources are owners and dependents, also those that nobody requested after a start.
func TestGarbageOfCustomResources(t *testing.T) {
	t.Parallel()
	options := controlplane.Options{Controllers: true, DataDir: t.TempDir()}
	server := start(t, options)
	c := connect(t, server.RESTConfig())
	gvr := newCRD(t, c, "owners")
	f := newFamily(t, c)
	custom := func(c clients, name string, owners ...metav1.OwnerReference) metav1.OwnerReference {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": "Owners",
			"metadata": map[string]any{"name": name}}}
		o.SetOwnerReferences(owners)
		made := must(c.dynamic.Resource(gvr).Namespace(f.home).Create(t.Context(), o, metav1.CreateOptions{}))(t)
		return metav1.OwnerReference{APIVersion: made.GetAPIVersion(), Kind: made.GetKind(), Name: name, UID: made.GetUID()}
	}
	child := func(c clients, name string, owner metav1.OwnerReference) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
		must(c.typed.CoreV1().ConfigMaps(f.home).Create(t.Context(), m, metav1.CreateOptions{}))(t)
	}
	top := custom(c, "top")
	middle := custom(c, "middle", top)
	child(c, "leaf", middle)
	second := custom(c, "second")
	custom(c, "third", second)
	if err := c.dynamic.Resource(gvr).Namespace(f.home).Delete(t.Context(), "top", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.becomes("")
	left := func() string {
		var names []string
		for _, o := range must(f.c.dynamic.Resource(gvr).Namespace(f.home).List(t.Context(), metav1.ListOptions{}))(t).Items {
			names = append(names, o.GetName())
		}
		return strings.Join(names, " ")
	}
	if got := left(); got != "second third" {
		t.Errorf("left are %q", got)
	}
	parent := f.add("parent")
	custom(c, "fourth", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "parent", UID: parent.UID})
	server.stop()

	f.c = connect(t, start(t, options).RESTConfig())
	f.delete("parent", metav1.DeletePropagationBackground) // nobody has requested the custom resources
	if err := f.c.dynamic.Resource(gvr).Namespace(f.home).Delete(t.Context(), "second",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.State(t, "the custom resources are gone", func() (bool, string) { return left() == "", left() })
}

// A custom resource in a group of the server itself is not reachable, as in kube-apiserver. Nothing waits for it, and
// nothing requests it again and again. Its definition can be deleted.
func TestGarbageBesideUnreachableResources(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var requested []string
	options := controlplane.Options{Controllers: true, DataDir: t.TempDir()}
	options.Middleware = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if path.Base(r.URL.Path) == "unreachables" {
				mu.Lock()
				requested = append(requested, r.URL.Path)
				mu.Unlock()
			}
			h.ServeHTTP(w, r)
		})
	}
	server := start(t, options)
	c := connect(t, server.RESTConfig())
	groups := []string{"storage.k8s.io", "events.k8s.io", "apiextensions.k8s.io"}
	for _, group := range groups {
		establish(t, c, &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "unreachables." + group,
				Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, test"}},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "unreachables", Kind: "Unreachable"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{
						OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}}},
		})
	}
	server.stop()

	f := newFamily(t, connect(t, start(t, options).RESTConfig()))
	f.add("parent")
	f.add("child", "parent")
	f.delete("parent", metav1.DeletePropagationBackground)
	f.becomes("")
	mu.Lock()
	if len(requested) > 0 {
		t.Errorf("the collector has requested %q", slices.Compact(slices.Clone(requested)))
	}
	mu.Unlock()
	definitions := f.c.crds.ApiextensionsV1().CustomResourceDefinitions()
	for _, group := range groups {
		if err := definitions.Delete(t.Context(), "unreachables."+group, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.True(t, "the definition is gone", func() bool {
			_, err := definitions.Get(t.Context(), "unreachables."+group, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

// An owner of a version that is served no longer may exist. One whose deletion was observed does not, whether its kind
// is served or not.
func TestGarbageOfKindsThatAreNotServed(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	gvr := newCRD(t, c, "owners")
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	serveOld := func(served bool) {
		t.Helper()
		redefine(t, c, gvr.GroupResource().String(), func(d *apiextensionsv1.CustomResourceDefinitionSpec) {
			old := d.Versions[0]
			old.Name, old.Served, old.Storage = "v0", served, false
			d.Versions = append(d.Versions[:1], old)
		})
		await.State(t, fmt.Sprintf("v0 is served: %v", served), func() (bool, string) {
			_, err := c.dynamic.Resource(gvr.GroupResource().WithVersion("v0")).List(t.Context(), metav1.ListOptions{})
			return (err == nil) == served, fmt.Sprint(err)
		})
	}
	f := newFamily(t, c)
	child := func(name string, owner metav1.OwnerReference) {
		t.Helper()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}}}
		must(c.typed.CoreV1().ConfigMaps(f.home).Create(t.Context(), m, metav1.CreateOptions{}))(t)
	}
	old := metav1.OwnerReference{APIVersion: gvr.Group + "/v0", Kind: "Owners", Name: "missing", UID: "missing"}
	serveOld(true)
	child("first", old)
	f.becomes("") // the collector has found the version
	serveOld(false)
	child("second", old)
	f.add("third", "missing")
	f.becomes("second<missing") // the third is handled after the second

	owners := c.dynamic.Resource(gvr).Namespace(f.home)
	custom := func(name string, references ...metav1.OwnerReference) *unstructured.Unstructured {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": "Owners",
			"metadata": map[string]any{"name": name}}}
		o.SetOwnerReferences(references)
		return must(owners.Create(t.Context(), o, metav1.CreateOptions{}))(t)
	}
	top := custom("top")
	child("leaf", metav1.OwnerReference{APIVersion: top.GetAPIVersion(), Kind: top.GetKind(), Name: "top",
		UID: top.GetUID()})
	f.add("fourth", "missing")
	custom("fifth", metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "missing", UID: "missing"})
	f.becomes("leaf<top second<missing")
	await.State(t, "the collector knows the owners", func() (bool, string) {
		left := must(owners.List(t.Context(), metav1.ListOptions{}))(t).Items
		return len(left) == 1, fmt.Sprint(len(left))
	})
	if err := definitions.Delete(t.Context(), gvr.GroupResource().String(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.becomes("second<missing")
}

// The objects of a definition are read as they are stored: in a version that is not served, and that nothing converts.
func TestGarbageOfVersionsThatAreNotServed(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	gvr := newCRD(t, c, "owners")
	f := newFamily(t, c)
	owner := f.add("a")
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": "Owners",
		"metadata": map[string]any{"name": "child"}}}
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: owner.UID}})
	must(c.dynamic.Resource(gvr).Namespace(f.home).Create(t.Context(), o, metav1.CreateOptions{}))(t)
	definition := gvr.GroupResource().String()
	newer := c.dynamic.Resource(gvr.GroupResource().WithVersion("v2")).Namespace(f.home)
	nobody := "https://127.0.0.1:1"
	redefine(t, c, definition, func(d *apiextensionsv1.CustomResourceDefinitionSpec) {
		d.Versions = append(d.Versions, d.Versions[0])
		d.Versions[0].Served, d.Versions[1].Name, d.Versions[1].Storage = false, "v2", false
		d.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig: &apiextensionsv1.WebhookClientConfig{URL: &nobody}, ConversionReviewVersions: []string{"v1"},
			}}
	})
	await.State(t, "v2 cannot be converted", func() (bool, string) {
		_, err := newer.Get(t.Context(), "child", metav1.GetOptions{})
		return err != nil && !apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	f.delete("a", metav1.DeletePropagationOrphan)
	f.add("missing-child", "missing")
	f.becomes("a*") // it waits for its dependent, which cannot be written
	redefine(t, c, definition, func(d *apiextensionsv1.CustomResourceDefinitionSpec) { d.Conversion = nil })
	f.becomes("")
	if left := must(newer.Get(t.Context(), "child", metav1.GetOptions{}))(t); len(left.GetOwnerReferences()) > 0 {
		t.Errorf("the dependent has owners: %v", left.GetOwnerReferences())
	}
	left := must(newer.Get(t.Context(), "child", metav1.GetOptions{}))(t)
	left.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: owner.UID}})
	must(newer.Update(t.Context(), left, metav1.UpdateOptions{}))(t)
	await.State(t, "the dependent is gone", func() (bool, string) {
		_, err := newer.Get(t.Context(), "child", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

// Without controllers nothing is collected, and no deletion waits for it.
func TestNoGarbageCollectorWithoutControllers(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	f := newFamily(t, c)
	f.add("a")
	f.add("b", "!a")
	f.delete("a", metav1.DeletePropagationForeground)
	if got := f.state(); got != "b<a" {
		t.Errorf("the objects are %q", got)
	}
}
