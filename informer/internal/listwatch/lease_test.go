package listwatch

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
)

func eventAt(name string, revision int) *corev1.Event {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "uid",
		ResourceVersion: fmt.Sprint(revision)}}
}

// The deletions of Events at one revision are in one batch. What a stream has not sent of them is asked for by the next
// one, and what the target has is not delivered again.
func TestDeletionsOfALease(t *testing.T) {
	var asked []string
	streams := make(chan *watch.FakeWatcher, 10)
	s := New(&cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (runtime.Object, error) {
			return &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.Event{*eventAt("a", 4)}}, nil
		},
		WatchFunc: func(o metav1.ListOptions) (watch.Interface, error) {
			asked = append(asked, o.ResourceVersion)
			return <-streams, nil
		}}, "events")
	if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
		t.Fatal(err)
	}
	next := func(from keepwatch.Revision, deleted ...string) (batches []string) {
		stream := watch.NewFakeWithChanSize(10, false)
		for _, name := range deleted {
			if name == "bookmark" {
				stream.Action(watch.Bookmark, eventAt("", 9))
				continue
			}
			stream.Delete(eventAt(name, 7))
		}
		stream.Stop()
		streams <- stream
		w, err := s.Watch(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for {
			b, err := w.Next()
			if err != nil {
				return batches
			}
			text := fmt.Sprintf("(%d,%d]", b.From, b.To)
			for _, c := range b.Changes {
				text += fmt.Sprintf(" %v %s@%d", c.Type, c.Object.Key().Name, c.Revision)
			}
			batches = append(batches, text)
		}
	}
	for i, step := range []struct{ got, want []string }{
		{next(5, "a", "b"), []string{"(5,7] DELETED a@7 DELETED b@7"}},
		{next(7, "a", "b", "c"), nil},
		{next(7, "a", "b", "c", "d", "bookmark"), []string{"(7,9] DELETED c@9 DELETED d@9"}},
		{next(9, "bookmark"), []string{"(9,9]"}},
	} {
		if !slices.Equal(step.got, step.want) {
			t.Errorf("stream %d delivers %q, want %q", i+1, step.got, step.want)
		}
	}
	if want := []string{"5", "6", "6", "8"}; !slices.Equal(asked, want) {
		t.Errorf("watches from %q, want %q", asked, want)
	}
}

func TestEventsAreLeased(t *testing.T) {
	of := func(version, kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	}
	for want, objects := range map[bool][]runtime.Object{
		true: {&corev1.Event{}, of("v1", "Event"), of("events.k8s.io/v1", "Event"),
			&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}},
		false: {&corev1.Pod{}, of("v1", "Pod"), of("example.com/v1", "Event"), &metav1.PartialObjectMetadata{}},
	} {
		for _, o := range objects {
			if isEvent(o) != want {
				t.Errorf("%T %v is an Event: %t", o, o.GetObjectKind().GroupVersionKind(), !want)
			}
		}
	}
}
