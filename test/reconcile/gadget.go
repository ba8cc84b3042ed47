// Package reconcile has one operator twice, on controller-runtime and on Keepwatch: for
// each gadget it creates a ConfigMap that the gadget owns, and then updates the gadget's
// status.
package reconcile

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Gadget is the custom resource, as an operator's author types it.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec,omitempty"`
	Status            GadgetStatus `json:"status,omitempty"`
}

type GadgetSpec struct {
	Size  int64  `json:"size,omitempty"`
	Color string `json:"color,omitempty"`
	Note  string `json:"note,omitempty"`
}

type GadgetStatus struct {
	Phase string `json:"phase,omitempty"`
	Child string `json:"child,omitempty"`
}

type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

func (g *Gadget) DeepCopyObject() runtime.Object { return g.copy() }

func (g *Gadget) copy() *Gadget {
	c := *g
	g.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (l *GadgetList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].copy())
	}
	return &c
}

// data returns the data of a gadget's ConfigMap.
func (g *Gadget) data() map[string]string {
	return map[string]string{"size": strconv.FormatInt(g.Spec.Size, 10), "color": g.Spec.Color}
}

// ready is the phase of a gadget that has its ConfigMap.
const ready = "Ready"

var gadgetVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Gadgets is the resource.
var Gadgets = gadgetVersion.WithResource("gadgets")

// newScheme returns a scheme with gadgets and the built-in kinds.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := clientscheme.AddToScheme(s); err != nil {
		return nil, err
	}
	s.AddKnownTypes(gadgetVersion, &Gadget{}, &GadgetList{})
	metav1.AddToGroupVersion(s, gadgetVersion)
	return s, nil
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}, color: {type: string}, note: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// Define creates the CustomResourceDefinition and waits until the server lists
// gadgets.
func Define(ctx context.Context, cfg *rest.Config) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	var crd unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(definition), &crd.Object); err != nil {
		return err
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	if _, err := client.Resource(definitions).Create(ctx, &crd, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := client.Resource(Gadgets).List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
}

// Fill creates a namespace with n gadgets.
func Fill(ctx context.Context, cfg *rest.Config, namespace string, n int) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace}}}
	if _, err := client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Create(ctx, ns,
		metav1.CreateOptions{}); err != nil {
		return err
	}
	return Add(ctx, cfg, namespace, 0, n)
}

// Add creates gadgets in a namespace, by their numbers.
func Add(ctx context.Context, cfg *rest.Config, namespace string, from, to int) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	const writers = 16
	errs := make(chan error, writers)
	for w := range writers {
		go func() {
			for i := from + w; i < to; i += writers {
				if _, err := client.Resource(Gadgets).Namespace(namespace).Create(ctx, gadget(i),
					metav1.CreateOptions{}); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		if failed := <-errs; failed != nil {
			err = failed
		}
	}
	return err
}

func gadget(i int) *unstructured.Unstructured {
	colors := []string{"red", "green", "blue"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gadgetVersion.String(), "kind": "Gadget",
		"metadata": map[string]any{"name": fmt.Sprintf("gadget-%05d", i), "labels": map[string]any{"app": "bench",
			"color": colors[i%3]}},
		"spec": map[string]any{"size": int64(i), "color": colors[i%3], "note": "made to be reconciled"},
	}}
}

// Done waits until n gadgets of a namespace are ready, by a watch that begins now.
func Done(ctx context.Context, cfg *rest.Config, namespace string, n int) error {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for ctx.Err() == nil {
		w, err := client.Resource(Gadgets).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for event := range w.ResultChan() {
			u, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				break
			}
			if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase == ready {
				seen[u.GetName()] = true
			}
			if len(seen) == n {
				w.Stop()
				return nil
			}
		}
		w.Stop()
	}
	return fmt.Errorf("%d of %d gadgets are ready: %w", len(seen), n, context.Cause(ctx))
}
