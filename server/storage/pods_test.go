package storage_test

import (
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/store"
)

func from(revision string) apistorage.ListOptions {
	o := everything
	o.ResourceVersion = revision
	return o
}

func exactly(revision string) apistorage.ListOptions {
	o := from(revision)
	o.ResourceVersionMatch = metav1.ResourceVersionMatchExact
	return o
}

func (r *rig) create(name string) *example.Pod {
	r.t.Helper()
	out := &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if err := r.Create(r.t.Context(), "/pods/ns/"+name, pod, out, 0); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// label updates a pod.
func (r *rig) label(name, value string) *example.Pod {
	r.t.Helper()
	out := &example.Pod{}
	err := r.GuaranteedUpdate(r.t.Context(), "/pods/ns/"+name, out, false, nil,
		apistorage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
			pod := o.(*example.Pod)
			pod.Labels = map[string]string{"l": value}
			return pod, nil
		}), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) delete(name string) *example.Pod {
	r.t.Helper()
	out := &example.Pod{}
	if err := r.Delete(r.t.Context(), "/pods/ns/"+name, out, nil, apistorage.ValidateAllObjectFunc, nil,
		apistorage.DeleteOptions{}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) list(o apistorage.ListOptions) *example.PodList {
	r.t.Helper()
	into := &example.PodList{}
	if err := r.GetList(r.t.Context(), "/pods/", o, into); err != nil {
		r.t.Fatal(err)
	}
	return into
}

func (r *rig) watch(key string, o apistorage.ListOptions) watch.Interface {
	r.t.Helper()
	w, err := r.Watch(r.t.Context(), key, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(w.Stop)
	return w
}

// next returns the next event of a watch as text: type, name, revision.
func next(t testing.TB, w watch.Interface) string {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "end"
		}
		return show(e)
	case <-time.After(await.Deadline):
		t.Fatal("the watch sends nothing")
		return ""
	}
}

func show(e watch.Event) string {
	if e.Type == watch.Error {
		return fmt.Sprintf("ERROR %s", apierrors.ReasonForError(apierrors.FromObject(e.Object)))
	}
	o := e.Object
	if shared, ok := o.(runtime.CacheableObject); ok {
		o = shared.GetObject()
	}
	pod := o.(*example.Pod)
	return fmt.Sprintf("%s %s %s", e.Type, pod.Name, pod.ResourceVersion)
}

func expect(t testing.TB, w watch.Interface, events ...string) {
	t.Helper()
	for _, want := range events {
		if got := next(t, w); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func eventText(e watch.EventType, pod *example.Pod) string {
	return fmt.Sprintf("%s %s %s", e, pod.Name, pod.ResourceVersion)
}

// newRigWithShortHistory returns a rig whose window contains the last changes only.
func newRigWithShortHistory(t testing.TB) *rig {
	return newRig(t, options{store: store.Options{WindowBytes: 1}})
}

// dropHistory writes until the earlier changes have left the window.
func (r *rig) dropHistory() {
	r.t.Helper()
	for range 4 {
		r.create("other")
		r.list(everything) // so that the next change is a batch of its own
		r.delete("other")
		r.list(everything)
	}
}

// withLabel adds a selector for l=value.
func withLabel(o apistorage.ListOptions, value string) apistorage.ListOptions {
	o.Predicate = apistorage.SelectionPredicate{Label: labels.SelectorFromSet(labels.Set{"l": value}),
		Field: fields.Everything(), GetAttrs: podAttrs}
	return o
}
