package controlplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// nextEvent returns the next event of a watch: its type, the object's name and the fields "size" and
// "color" of its spec, or "end" if the watch has ended.
func nextEvent(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		if !open {
			return "end"
		}
		o, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Error {
			return fmt.Sprint(e.Type, " ", e.Object)
		}
		return fmt.Sprint(e.Type, " ", sized(o))
	case <-time.After(await.Deadline):
		t.Fatal("the watch sends nothing")
		return ""
	}
}

func sized(o *unstructured.Unstructured) string {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	return fmt.Sprint(o.GetAPIVersion()[len(o.GetAPIVersion())-2:], " ", o.GetName(), " ", spec["size"], " ",
		spec["color"])
}

// newSized creates a custom resource with a size and a color; the server prunes fields that the definition lacks.
func newSized(t *testing.T, in dynamic.ResourceInterface, gvr schema.GroupVersionResource,
	name string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Widgets", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": int64(1), "color": "blue"},
	}}
	return must(in.Create(t.Context(), o, metav1.CreateOptions{}))(t)
}

// redefine changes a definition.
func redefine(t *testing.T, c clients, name string, change func(*apiextensionsv1.CustomResourceDefinitionSpec)) {
	t.Helper()
	definitions := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	await.State(t, "the definition is changed", func() (bool, string) {
		crd := must(definitions.Get(t.Context(), name, metav1.GetOptions{}))(t)
		change(&crd.Spec)
		_, err := definitions.Update(t.Context(), crd, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// The read path answers by the same definition as apiextensions-apiserver: while the definition
// changes, a client whose requests alternate between both never sees an older definition again.
func TestReadPathUsesTheLibrarysDefinition(t *testing.T) {
	t.Parallel()
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	server := start(t, controlplane.Options{})
	c := connect(t, server.RESTConfig())
	gvr := newCRD(t, c, "widgets")
	widgets := c.dynamic.Resource(gvr).Namespace("default")
	define := func(round int) {
		redefine(t, c, "widgets."+gvr.Group, func(crd *apiextensionsv1.CustomResourceDefinitionSpec) {
			crd.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["round"] = apiextensionsv1.JSONSchemaProps{
				Type: "integer", Default: &apiextensionsv1.JSON{Raw: fmt.Append(nil, round)},
			}
		})
	}
	newSized(t, widgets, gvr, "read")
	client := c.typed.CoreV1().RESTClient()
	round := func(ctx context.Context, accept string) (int, error) {
		var o struct{ Spec struct{ Round int } }
		body, err := client.Get().AbsPath("/apis/"+gvr.Group, "v1/namespaces/default/widgets/read").SetHeader("Accept",
			accept).DoRaw(ctx)
		if err == nil {
			err = json.Unmarshal(body, &o)
		}
		return o.Spec.Round, err
	}
	const byReadPath, byLibrary = asJSON, asJSON + ";unknown=1" // the read path delegates unknown parameters
	reading, stop := context.WithCancel(t.Context())
	var all errgroup.Group
	for range 4 {
		all.Go(func() error {
			for newest := 0; reading.Err() == nil; {
				for _, by := range []string{byReadPath, byLibrary} {
					got, err := round(t.Context(), by)
					if err != nil {
						return err
					}
					if got < newest {
						return fmt.Errorf("%s: answered by definition %d after definition %d", by, got, newest)
					}
					newest = got
				}
			}
			return nil
		})
	}
	all.Go(func() error {
		for reading.Err() == nil {
			o := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": gvr.GroupVersion().String(), "kind": "Widgets", "metadata": map[string]any{"name": "written"},
			}}
			if _, err := widgets.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				return err
			}
			if err := widgets.Delete(t.Context(), "written", metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	answered := func() float64 {
		return counted(t, server.RESTConfig(), `keepwatch_readpath_answered_total{verb="get"`)
	}
	for i := 1; i <= rounds; i++ {
		define(i)
		if i%3 == 0 {
			continue // the next change follows at once
		}
		await.State(t, "the library uses the newest definition", func() (bool, string) {
			got, err := round(t.Context(), byLibrary)
			return err == nil && got == i, fmt.Sprint(got, err)
		})
		before := answered()
		await.State(t, "the read path answers", func() (bool, string) {
			got, err := round(t.Context(), byReadPath)
			return err == nil && got == i && answered() > before, fmt.Sprint(got, err)
		})
	}
	stop()
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// A change of a definition ends the watches of its resource, as in kube-apiserver. A watch that resumes
// receives each later event once, in the new definition.
func TestDefinitionChangesDuringWatches(t *testing.T) {
	t.Parallel()
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	gvr := newCRD(t, c, "widgets")
	name := "widgets." + gvr.Group
	widgets := c.dynamic.Resource(gvr).Namespace(ns)
	follow := func(in dynamic.ResourceInterface, from string) watch.Interface {
		t.Helper()
		w := must(in.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from}))(t)
		t.Cleanup(w.Stop)
		return w
	}
	is := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	listed := func(in dynamic.ResourceInterface) (all []string) {
		t.Helper()
		for _, o := range must(in.List(t.Context(), metav1.ListOptions{}))(t).Items {
			all = append(all, sized(&o))
		}
		return all
	}
	shows := func(in dynamic.ResourceInterface, want ...string) {
		t.Helper()
		await.State(t, fmt.Sprint("the list has ", want), func() (bool, string) {
			got := listed(in)
			return slices.Equal(got, want), fmt.Sprint(got)
		})
	}

	first := newSized(t, widgets, gvr, "a")
	w := follow(widgets, first.GetResourceVersion())
	last := newSized(t, widgets, gvr, "b")
	is(nextEvent(t, w), "ADDED v1 b 1 <nil>") // a field that the definition lacks is pruned

	redefine(t, c, name, func(crd *apiextensionsv1.CustomResourceDefinitionSpec) {
		crd.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["color"] = apiextensionsv1.JSONSchemaProps{
			Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"red"`)},
		}
	})
	shows(widgets, "v1 a 1 red", "v1 b 1 red")
	is(nextEvent(t, w), "end")
	w = follow(widgets, last.GetResourceVersion())
	last = newSized(t, widgets, gvr, "c")
	is(nextEvent(t, w), "ADDED v1 c 1 blue")

	redefine(t, c, name, func(crd *apiextensionsv1.CustomResourceDefinitionSpec) {
		newer := *crd.Versions[0].DeepCopy()
		newer.Name = "v2"
		crd.Versions[0].Storage = false
		crd.Versions = append(crd.Versions, newer)
	})
	is(nextEvent(t, w), "end")
	gvr2 := gvr.GroupResource().WithVersion("v2")
	widgets2 := c.dynamic.Resource(gvr2).Namespace(ns)
	await.State(t, "the new version is served", func() (bool, string) {
		_, err := widgets2.List(t.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	w, w2 := follow(widgets, last.GetResourceVersion()), follow(widgets2, first.GetResourceVersion())
	last = newSized(t, widgets, gvr, "d")
	is(nextEvent(t, w), "ADDED v1 d 1 blue")
	for _, want := range []string{"ADDED v2 b 1 red", "ADDED v2 c 1 blue", "ADDED v2 d 1 blue"} {
		is(nextEvent(t, w2), want)
	}

	redefine(t, c, name, func(crd *apiextensionsv1.CustomResourceDefinitionSpec) { crd.Versions[0].Served = false })
	is(nextEvent(t, w), "end")
	is(nextEvent(t, w2), "end")
	await.State(t, "the old version is not served", func() (bool, string) {
		_, err := widgets.List(t.Context(), metav1.ListOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	shows(widgets2, "v2 a 1 red", "v2 b 1 red", "v2 c 1 blue", "v2 d 1 blue")

	w2 = follow(widgets2, last.GetResourceVersion())
	if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var deleted []string
	for e := nextEvent(t, w2); e != "end"; e = nextEvent(t, w2) {
		deleted = append(deleted, e)
	}
	slices.Sort(deleted)
	if want := []string{"DELETED v2 a 1 red", "DELETED v2 b 1 red", "DELETED v2 c 1 blue",
		"DELETED v2 d 1 blue"}; !slices.Equal(deleted, want) {
		t.Errorf("the deletion of a definition sends %q", deleted)
	}
	newCRDIn(t, c, gvr.Group, "widgets")
	empty := must(widgets.List(t.Context(), metav1.ListOptions{}))(t)
	if len(empty.Items) > 0 {
		t.Errorf("the new definition has the objects %v", empty.Items)
	}
	w = follow(widgets, empty.GetResourceVersion())
	newSized(t, widgets, gvr, "a")
	is(nextEvent(t, w), "ADDED v1 a 1 <nil>")
}
