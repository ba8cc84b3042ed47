package validation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
	"github.com/keepwatch/keepwatch/test/peer"
)

var initial = []schema.GroupVersionResource{
	{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "flowschemas"},
	{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: "prioritylevelconfigurations"},
	{Group: "storagemigration.k8s.io", Version: "v1", Resource: "storageversionmigrations"},
	{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"},
}

// A test server begins with the APIServices, flow schemas, priority levels and priority classes of kube-apiserver
// v1.37: their labels, annotations and specs, and the conditions of APIServices. A definition gets the same APIService,
// and the groups have the same resources in discovery. Each health check of kube-apiserver's aggregator is one of the
// test server.
func TestInitialConfiguration(t *testing.T) {
	real, own := peer.LatestKubernetes(t).Config(), testserver.New(t).Config()
	want, got := configurationOf(t, real), configurationOf(t, own)
	if len(want) < 40 {
		t.Fatalf("kube-apiserver has %d objects: this test reads too early", len(want))
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("- kube-apiserver, + testserver:\n%s", diff)
	}
	if diff := gocmp.Diff(resourcesOf(t, real), resourcesOf(t, own)); diff != "" {
		t.Errorf("discovery, - kube-apiserver, + testserver:\n%s", diff)
	}
	checks := checksOf(t, own)
	for _, check := range checksOf(t, real) {
		if aggregators := strings.Contains(check, "regist") || strings.Contains(check, "apiservice") ||
			strings.Contains(check, "aggregator"); aggregators && !slices.Contains(checks, check) {
			t.Errorf("/readyz lacks %q", check)
		}
	}
}

// configurationOf returns what is compared of a server's objects, after it has registered a definition.
func configurationOf(t *testing.T, config *rest.Config) map[string]any {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"})
	if _, err := definitions.Create(t.Context(), definition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := client.Resource(initial[0]).Get(ctx, "v1beta1.initial.example.com", metav1.GetOptions{})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: the definition is not registered: %v", config.Host, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	found := map[string]any{}
	for _, resource := range initial {
		list, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			var conditions []string
			all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			for _, c := range all {
				if condition := c.(map[string]any); condition["type"] != "Dangling" {
					conditions = append(conditions, fmt.Sprint(condition["type"], condition["status"], condition["reason"],
						condition["message"]))
				}
			}
			found[o.GetKind()+" "+o.GetName()] = []any{o.GetLabels(), o.GetAnnotations(), o.Object["spec"], conditions}
			if o.GetKind() == "PriorityClass" { // it has no spec
				found[o.GetKind()+" "+o.GetName()] = []any{o.GetLabels(), o.GetAnnotations(), o.Object["value"],
					o.Object["globalDefault"], o.Object["description"], o.Object["preemptionPolicy"]}
			}
		}
	}
	return found
}

func definition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.initial.example.com"},
		"spec": map[string]any{
			"group": "initial.example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets",
				"kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1beta1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}},
		},
	}}
}

// resourcesOf returns the resources of the groups in discovery, by name.
func resourcesOf(t *testing.T, config *rest.Config) (all []metav1.APIResource) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]bool{}
	for _, resource := range initial {
		if groups[resource.Group] {
			continue
		}
		groups[resource.Group] = true
		list, err := client.ServerResourcesForGroupVersion(resource.GroupVersion().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if r.Kind == "StorageVersionMigration" { // kube-apiserver v1.37 still stores them in v1beta1
				r.StorageVersionHash = ""
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// checksOf returns the lines of /readyz.
func checksOf(t *testing.T, config *rest.Config) []string {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.RESTClient().Get().AbsPath("/readyz").Param("verbose", "").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(answer), "\n")
}

// changeMandatory returns the answers to changes of objects with which a server begins. Of the mandatory ones, only the
// numbers of the exempt level can be changed.
func changeMandatory(t *testing.T, side *dynamic.DynamicClient) (answers []answer) {
	t.Helper()
	for _, c := range []struct{ resource, name, change string }{
		{"flowschemas", "exempt", `{"spec":{"matchingPrecedence":5}}`},
		{"flowschemas", "catch-all", `{"metadata":{"labels":{"a":"b"}}}`},
		{"flowschemas", "probes", `{"spec":{"matchingPrecedence":1}}`},
		{"prioritylevelconfigurations", "exempt", `{"spec":{"exempt":{"nominalConcurrencyShares":7}}}`},
		{"prioritylevelconfigurations", "exempt", `{"spec":{"type":"Limited"}}`},
		{"prioritylevelconfigurations", "catch-all", `{"spec":{"limited":{"nominalConcurrencyShares":7}}}`},
	} {
		resource := schema.GroupVersionResource{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Resource: c.resource}
		_, err := side.Resource(resource).Patch(t.Context(), c.name, types.MergePatchType, []byte(c.change),
			metav1.PatchOptions{DryRun: dry})
		answers = append(answers, answerOf(t, err))
	}
	return answers
}
