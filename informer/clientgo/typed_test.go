//go:build !k8s_v0.35 && !k8s_v0.36

package clientgo_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// No callback runs once the shutdown has returned. A handler can remove itself. The shutdown of
// a handler that was removed before the start returns at once.
func TestRemovalEndsHandlers(t *testing.T) {
	source := newSource(t, podtest.Pod("a"), podtest.Pod("b"))
	inf := shared(source, 0)
	unstarted := handle(t, inf, &recorder{})
	if err := cache.ShutDownEventHandler(inf, unstarted); err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)

	entered, released := make(chan struct{}), make(chan struct{})
	slow := &recorder{react: func(string) { entered <- struct{}{}; <-released }}
	registration := handle(t, inf, slow)
	<-entered
	if err := inf.RemoveEventHandler(registration); err != nil {
		t.Fatal(err)
	}
	select {
	case <-registration.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan():
		t.Fatal("the shutdown is complete while the callback runs")
	case released <- struct{}{}:
	}
	if err := cache.ShutDownEventHandler(inf, registration); err != nil {
		t.Fatal(err)
	}
	if got := slow.all(); len(got) != 1 || registration.HasSynced() {
		t.Errorf("events %q, synced: %v", got, registration.HasSynced())
	}

	var self cache.ResourceEventHandlerRegistration
	known := make(chan struct{})
	own := &recorder{react: func(string) { <-known; _ = inf.RemoveEventHandler(self) }}
	self = handle(t, inf, own)
	close(known)
	<-self.(interface{ ShutdownChan() <-chan struct{} }).ShutdownChan()
	if got := own.all(); len(got) != 1 {
		t.Errorf("events %q", got)
	}
}

// client-go's typed view works on a Shared.
func TestTypedView(t *testing.T) {
	source := newSource(t, podtest.Pod("a", podtest.Mark("1")))
	inf := cache.NewTypedSharedIndexInformer[*corev1.Pod](shared(source, 0))
	events := make(chan string, 10)
	registration, err := inf.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.Pod]{
		AddFunc:    func(p *corev1.Pod) { events <- "add " + p.Name },
		DeleteFunc: func(o cache.DeletedObject[*corev1.Pod]) { events <- "delete " + o.OptionalObj.Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := inf.AddTypedIndexers(cache.TypedIndexers[*corev1.Pod]{"mark": func(p *corev1.Pod) ([]string, error) {
		return []string{p.Labels["mark"]}, nil
	}}); err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, registration)
	pods, err := inf.GetTypedIndexer().ByTypedIndex("mark", "1")
	if err != nil || len(pods) != 1 || pods[0].Name != "a" {
		t.Errorf("%v, %v", pods, err)
	}
	source.Delete(podtest.Pod("a"))
	for _, want := range []string{"add a", "delete a"} {
		if got := <-events; got != want {
			t.Errorf("events %q, want %q", got, want)
		}
	}
}
