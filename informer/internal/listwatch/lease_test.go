package listwatch

import (
	"context"
	"errors"
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

func podAt(name string, revision int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: eventAt(name, revision).ObjectMeta}
}

// The deletions of Events at one revision are in one batch. What comes later waits for the next revision, and if the
// stream ends before, only a list shows it.
func TestDeletionsOfALease(t *testing.T) {
	stream := watch.NewFakeWithChanSize(10, false)
	s := New(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.Event{*eventAt("a", 4)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return stream, nil },
	}, "events")
	list := func() {
		if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	list()
	w, err := s.Watch(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, step := range [][]*corev1.Event{{eventAt("a", 7), eventAt("b", 7)}, {eventAt("c", 7), eventAt("d", 9)},
		{eventAt("e", 9)}} {
		for _, e := range step {
			stream.Delete(e)
		}
		if step[0].Name == "e" {
			stream.Stop()
		}
		var b keepwatch.Batch
		if b, err = w.Next(); err == nil {
			text := fmt.Sprintf("(%d,%d]", b.From, b.To)
			for _, c := range b.Changes {
				text += fmt.Sprintf(" %v %s@%d", c.Type, c.Object.Key().Name, c.Revision)
			}
			got = append(got, text)
		}
	}
	want := []string{"(5,7] DELETED a@7 DELETED b@7", "(7,9] DELETED c@9 DELETED d@9"}
	if !slices.Equal(got, want) || kindOf(err) != keepwatch.Ended {
		t.Errorf("delivered %q, then %v, want %q", got, err, want)
	}
	w.Close()
	if _, err := s.Watch(t.Context(), 9); kindOf(err) != keepwatch.Expired {
		t.Errorf("a watch behind the stream: %v", err)
	}
	list()
	if _, err := s.Watch(t.Context(), 9); err != nil {
		t.Errorf("a watch behind a list: %v", err)
	}
}

// A deletion behind a bookmark at its revision is shown by a list, or by the next bookmark as a breach of the contract.
func TestDeletionBehindABookmark(t *testing.T) {
	for _, again := range []bool{false, true} {
		stream := watch.NewFakeWithChanSize(10, false)
		s := New(&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.Pod{*podAt("a", 4)}}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return stream, nil },
		}, "pods")
		if _, err := s.List(t.Context(), keepwatch.ListRequest{}); err != nil {
			t.Fatal(err)
		}
		w, err := s.Watch(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		bookmark := func() { stream.Action(watch.Bookmark, podAt("", 7)) }
		bookmark()
		stream.Delete(podAt("a", 7))
		want := keepwatch.Ended
		if again {
			bookmark()
			want = keepwatch.ProtocolViolation
		}
		stream.Stop()
		for err == nil {
			var b keepwatch.Batch
			if b, err = w.Next(); len(b.Changes) > 0 {
				t.Errorf("delivered %v", b.Changes)
			}
		}
		if kindOf(err) != want {
			t.Errorf("the bookmark again: %v; %v, want %v", again, err, want)
		}
		w.Close()
		if _, err := s.Watch(t.Context(), 7); kindOf(err) != keepwatch.Expired {
			t.Errorf("a watch behind the bookmark: %v", err)
		}
	}
}

// A revision is not split, however many objects end at it.
func TestLargeLease(t *testing.T) {
	const n = maxBatch + 200
	stream := watch.NewFakeWithChanSize(n+1, false)
	s := New(&cache.ListWatch{
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return stream, nil },
	}, "events")
	stream.Add(eventAt("first", 6))
	for i := range n {
		stream.Delete(eventAt(fmt.Sprint("e-", i), 7))
	}
	w, err := s.Watch(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if b, err := w.Next(); err != nil || len(b.Changes) != n+1 || b.To != 7 {
		t.Errorf("a batch of %d changes to %d, %v", len(b.Changes), b.To, err)
	}
}

func kindOf(err error) keepwatch.FailureKind {
	var failure *keepwatch.Failure
	errors.As(err, &failure)
	if failure == nil {
		return 0
	}
	return failure.Kind
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
