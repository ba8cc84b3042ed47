package operators

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// definitionPlans returns a plan for each step and each watched type of which the step creates all objects: these
// return with their definition.
func (ref *reference) definitionPlans(kind Kind) []Plan {
	var all []Plan
	for n, created := range ref.applied {
		own := map[string]bool{} // whether the step has created all objects of the type
		for _, key := range created {
			resource, _, _ := strings.Cut(key, " ")
			own[resource] = ref.defined[resource] && ref.watched[n][resource]
		}
		for key := range ref.states[n] {
			resource, _, _ := strings.Cut(key, " ")
			own[resource] = own[resource] && slices.Contains(created, key)
		}
		for _, resource := range slices.Sorted(maps.Keys(own)) {
			if own[resource] {
				all = append(all, Plan{Kind: kind.Name, Place: Place{Step: n, Verb: watchVerb, Resource: resource}})
			}
		}
	}
	return all
}

// redefine deletes the definition of the plan's type, and with it all objects. When the operator has asked for them in
// vain, both are created again, and it has to arrive again.
func (r *run) redefine(ctx context.Context, n int) error {
	name, api := r.fault.place.Resource, r.world.objects.Resource(definitions)
	definition, err := api.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	r.fault.happens("somebody deletes the definition of %s", name)
	r.outcome.redefined = true
	if err := api.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	gone, err := r.until(ctx, n, func() (bool, error) {
		if _, err := api.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return false, err
		}
		_, err := r.objects().List(ctx, metav1.ListOptions{Limit: 1})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return err
	}
	if !gone {
		r.outcome.unfulfilled = fmt.Sprintf("step %d: the definition of %s, which somebody has deleted, does not go", n, name)
		return errEnded
	}
	missed := r.world.traffic.awaitMiss(name)
	if _, err := r.until(ctx, n, missed); err != nil {
		return err
	}
	if _, err := api.Create(ctx, bare(definition), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := r.world.discover(ctx); err != nil {
		return err
	}
	ended := false // the run, whose operator dies again and again
	err = poll(ctx, func() error {
		err := r.perform(ctx, n)
		if ended = errors.Is(err, errEnded); ended {
			return nil
		}
		return err
	})
	if ended {
		err = errEnded
	}
	if err != nil {
		return err
	}
	r.world.traffic.note("the definition and its objects are created again")
	return r.settleAgain(ctx, n)
}

// bare returns a definition as somebody would create it.
func bare(definition *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": definition.Object["spec"]}}
	o.SetGroupVersionKind(definition.GroupVersionKind())
	o.SetName(definition.GetName())
	o.SetLabels(definition.GetLabels())
	o.SetAnnotations(definition.GetAnnotations())
	return o
}

// awaitMiss returns a function that reports whether a later read of a resource was answered with 404.
func (t *traffic) awaitMiss(resource string) func() (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := &miss{resource: resource}
	t.miss = seen
	return func() (bool, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return seen.missed, nil
	}
}

// miss is whether a read of a resource was answered with 404.
type miss struct {
	resource string
	missed   bool
}

// noticing returns a response whose status is noticed, if a miss of its resource is awaited.
func (t *traffic) noticing(w http.ResponseWriter, q *http.Request) http.ResponseWriter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.miss == nil || t.miss.missed || t.miss.resource != placeOf(infoOf(q), "").Resource {
		return w
	}
	return responsewriter.WrapForHTTP1Or2(noticedResponse{w, t, t.miss})
}

type noticedResponse struct {
	http.ResponseWriter
	traffic *traffic
	miss    *miss
}

func (w noticedResponse) WriteHeader(status int) {
	w.traffic.mu.Lock()
	w.miss.missed = w.miss.missed || status == http.StatusNotFound
	w.traffic.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
}

func (w noticedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
