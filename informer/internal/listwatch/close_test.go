package listwatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// filtered returns a source of a client with a filter in front of its watch, as
// controller-runtime's for metadata. The filter's goroutine ends only once its events were
// received.
func filtered(events *watch.FakeWatcher) *Source {
	return New(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { panic("no list") },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) { return e, true }), nil
		},
	}, "pods")
}

func TestCloseReceivesTheRemainingEvents(t *testing.T) {
	events := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 3})
	w, err := filtered(events).Watch(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		events.Add(&corev1.Pod{})
	}
	w.Close()
	if e, open := <-w.(*stream).watch.ResultChan(); open {
		t.Errorf("%v was not received", e)
	}
}

// Close abandons a client that ignores Stop after a second.
func TestCloseAbandonsTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ignoring := watch.MockWatcher{StopFunc: func() {}, ResultChanFunc: func() <-chan watch.Event { return nil }}
		s := New(&cache.ListWatch{
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return ignoring, nil },
		}, "pods")
		w, err := s.Watch(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		w.Close()
		if took := time.Since(begin); took != stopTimeout {
			t.Errorf("Close took %v", took)
		}
	})
}
