package operators

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestKept checks which objects stay if nobody deletes them: not one that is being deleted, and not one whose owner is
// gone, also if another one has its name.
func TestKept(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFile(t, folder+"/crd.yaml", twoVersions)
	o, err := Options{CRDs: []string{folder}, Operator: Operator{Command: []string{"none"}}, Workload: folder}.complete()
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWorld(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	api := w.objects.Resource(configMaps).Namespace("default")
	gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}
	gadget.SetName("a")
	gadgets := configMaps
	gadgets.Group, gadgets.Resource = "example.com", "gadgets"
	owner, err := w.objects.Resource(gadgets).Namespace("default").Create(t.Context(), gadget, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string, owners ...metav1.OwnerReference) {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(name)
		o.SetOwnerReferences(owners)
		o.SetFinalizers([]string{"example.com/stays"}) // also if the garbage collector wants it
		if _, err := api.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	there := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Gadget", Name: "a", UID: owner.GetUID()}
	gone, missing := there, there
	gone.UID, missing.Name = "00000000-0000-4000-8000-000000000000", "b"
	create("alone")
	create("owned", there)
	create("owned-by-one", gone, there)
	create("of-another", gone)
	create("of-none", missing)
	create("deleted")
	if err := api.Delete(t.Context(), "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kept, err := w.kept(t.Context(), configMaps, "default")
	if got, want := fmt.Sprint(sortedKeys(kept)), "[alone kube-root-ca.crt owned owned-by-one]"; err != nil || got != want {
		t.Errorf("%s, want %s, %v", got, want, err)
	}
}

// TestGivenWebhooks checks that a run begins with the operator's webhooks, which are registered for each run: the state
// of their type is this one as long as nobody writes to it.
func TestGivenWebhooks(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	writeFile(t, folder+"/hooks.yaml", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: gadgets.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: webhook-service, namespace: system, path: /validate}}
  sideEffects: None
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [gadgets]}]
`)
	o, err := Options{Operator: Operator{Command: []string{"none", portWord}}, Webhooks: []string{folder},
		Workload: folder}.complete()
	if err != nil {
		t.Fatal(err)
	}
	base, err := newWorld(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer base.close()
	r, err := newRun(t.Context(), base, o, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.world.close()
	hooks := typeSet{{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}: true}
	now, err := r.world.state(t.Context(), hooks)
	if found := differences(now, r.outcome.given.state.of(hooks)); err != nil || len(now) != 1 || len(found) > 0 {
		t.Errorf("%d webhooks, %v, %v", len(now), found, err)
	}
}
