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

// filtered is what clients with a filter before their watch give to readers, like
// controller-runtime's for metadata: its goroutine ends only when what it has in
// hand was taken.
func filtered(events *watch.FakeWatcher) *Source {
	return New(&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { panic("no list") },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) { return e, true }), nil
		},
	}, "pods")
}

func TestCloseTakesWhatIsOnItsWay(t *testing.T) {
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
		t.Errorf("%v is left", e)
	}
}

// A client that does not heed Stop is left to itself, after a second.
func TestCloseOfOneThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := watch.MockWatcher{StopFunc: func() {}, ResultChanFunc: func() <-chan watch.Event { return nil }}
		s := New(&cache.ListWatch{
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return deaf, nil },
		}, "pods")
		w, err := s.Watch(t.Context(), 5)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		w.Close()
		if took := time.Since(began); took != retreat {
			t.Errorf("Close took %v", took)
		}
	})
}
