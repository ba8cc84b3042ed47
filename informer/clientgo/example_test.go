package clientgo_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
)

// NewSharedIndexInformer replaces cache.NewSharedIndexInformer. A fake client works as well.
func ExampleNewSharedIndexInformer() {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
	pods := clientgo.NewSharedIndexInformer(podsOf(client), &corev1.Pod{}, 0, cache.Indexers{})
	registration, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { fmt.Println("added", o.(*corev1.Pod).Name) },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); pods.RunWithContext(ctx) }()
	cache.WaitForCacheSync(ctx.Done(), registration.HasSynced)
	cancel()
	<-ended
	// Output: added a
}

// For adds an informer to one of client-go's factories, for all users of the factory.
func ExampleFor() {
	podsOf := func(client kubernetes.Interface) cache.ListerWatcher {
		pods := client.CoreV1().Pods(metav1.NamespaceAll)
		return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				return pods.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, options)
			},
		}, client)
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	factory.InformerFor(&corev1.Pod{}, clientgo.For(podsOf))
	lister := factory.Core().V1().Pods().Lister() // reads Keepwatch's informer
	_ = lister
}

// NewDynamicSharedInformerFactory replaces dynamicinformer's.
func ExampleNewDynamicSharedInformerFactory() {
	var client dynamic.Interface // of dynamic.NewForConfig
	factory := clientgo.NewDynamicSharedInformerFactory(client, time.Hour)
	_ = factory
}

// A group makes the informers of a manager's cache, and reports their health and metrics.
func ExampleGroup() {
	group := clientgo.NewGroup()
	// manager.New(cfg, manager.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
	prometheus.NewRegistry().MustRegister(group)
	http.NewServeMux().Handle("/healthz", group) // or mgr.AddHealthzCheck("informers", group.Check)
}

// With Direct the informers read the server themselves. With controller-runtime:
//
//	cache.Options{NewInformer: group.NewSharedIndexInformer}
func ExampleDirect() {
	cfg := &rest.Config{Host: "https://localhost"} // of clientcmd, or rest.InClusterConfig
	cfg, direct := clientgo.Direct(cfg)
	group := clientgo.NewGroup(direct, clientgo.DropManagedFields())

	clients := kubernetes.NewForConfigOrDie(cfg)
	pods := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", "web", fields.Everything())
	inf := group.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
	fmt.Println(inf.HasSynced())
	// Output: false
}
