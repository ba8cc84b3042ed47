package clientgo

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// For returns a constructor for factory.InformerFor:
//
//	factory.InformerFor(&corev1.Pod{}, clientgo.For(func(c kubernetes.Interface) cache.ListerWatcher {…}))
//
// The informer accepts objects of any type that the ListerWatcher returns; see [Group.For] for a
// type.
func For(lw func(kubernetes.Interface) cache.ListerWatcher) func(
	kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return NewGroup().For(nil, lw)
}

// For returns a constructor of informers of the group for factory.InformerFor:
//
//	factory.InformerFor(&corev1.Pod{}, group.For(&corev1.Pod{}, func(c kubernetes.Interface) cache.ListerWatcher {…}))
//
// Objects of another type than the example's are skipped; see health.Status.
func (g *Group) For(example runtime.Object,
	lw func(kubernetes.Interface) cache.ListerWatcher) func(
	kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return g.NewSharedIndexInformer(lw(client), example, resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
}
