package clients

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informer is client-go's, of its shared factory.
type informer struct {
	store cache.Store

	mu     sync.Mutex
	folded state
}

func newInformer(t *testing.T, config *rest.Config) *informer {
	t.Helper()
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace(namespace))
	shared := factory.Core().V1().Pods().Informer()
	i := &informer{store: shared.GetStore(), folded: state{}}
	if _, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    i.put,
		UpdateFunc: func(_, o any) { i.put(o) },
		DeleteFunc: i.remove,
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown) // the test's context has ended by then
	return i
}

func (i *informer) put(o any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := o.(metav1.Object)
	i.folded[m.GetName()] = stateOf(m)
}

func (i *informer) remove(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.folded, o.(metav1.Object).GetName())
}

func stateOf(o metav1.Object) string { return fmt.Sprintf("%s/%s", o.GetUID(), o.GetResourceVersion()) }

func (i *informer) states() ([]state, error) {
	cached := state{}
	for _, o := range i.store.List() {
		m := o.(metav1.Object)
		cached[m.GetName()] = stateOf(m)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return []state{cached, maps.Clone(i.folded)}, nil
}
