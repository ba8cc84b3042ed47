package informer

import (
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// For makes a constructor that factory.InformerFor takes:
//
//	factory.InformerFor(&corev1.Pod{}, informer.For(func(c kubernetes.Interface) cache.ListerWatcher {…}))
func For(lw func(kubernetes.Interface) cache.ListerWatcher) func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return NewSharedIndexInformer(lw(client), nil, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
}
