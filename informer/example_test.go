package informer_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer"
)

// In place of cache.NewSharedIndexInformer. A unit test's fake client will do.
func ExampleNewSharedIndexInformer() {
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
	pods := informer.NewSharedIndexInformer(podsOf(client), &corev1.Pod{}, 0, cache.Indexers{})
	registration, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { fmt.Println("added", o.(*corev1.Pod).Name) },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); pods.RunWithContext(ctx) }()
	<-registration.HasSyncedChecker().Done()
	cancel()
	<-ended
	// Output: added a
}

// In one of client-go's factories, for all that uses the factory.
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
	factory.InformerFor(&corev1.Pod{}, informer.For(podsOf))
	lister := factory.Core().V1().Pods().Lister() // reads our informer
	_ = lister
}

// In place of dynamicinformer.NewDynamicSharedInformerFactory.
func ExampleNewDynamicSharedInformerFactory() {
	var client dynamic.Interface // of dynamic.NewForConfig
	factory := informer.NewDynamicSharedInformerFactory(client, time.Hour)
	_ = factory
}

// In a manager's cache, with health and metrics.
func ExampleGroup() {
	group := informer.NewGroup()
	// manager.New(cfg, manager.Options{Cache: cache.Options{NewInformer: group.NewSharedIndexInformer}})
	prometheus.NewRegistry().MustRegister(group)
	http.NewServeMux().Handle("/healthz", group) // or mgr.AddHealthzCheck("informers", group.Check)
}

// Without client-go's types.
func ExampleNew() {
	var cfg *rest.Config // of clientcmd, or rest.InClusterConfig
	follow := func(ctx context.Context) error {
		pods, err := informer.New[*corev1.Pod](cfg,
			informer.Namespace("web"), informer.Labels("app=web"),
			informer.Index("node", func(p *corev1.Pod) []string { return []string{p.Spec.NodeName} }),
		)
		if err != nil {
			return err
		}
		_, err = pods.Handle(func(ctx context.Context, c informer.Change[*corev1.Pod]) error {
			fmt.Println(c.Type, c.Object.Name)
			return nil // or an error, and the change comes again
		})
		if err != nil {
			return err
		}
		go func() {
			<-pods.Synced()
			now := pods.Snapshot() // consistent over all indexes
			for pod := range now.ByIndex("node", "n1") {
				fmt.Println(pod.Name)
			}
		}()
		return pods.Run(ctx)
	}
	_ = follow
}

// Custom resources, and any others, without a Go type.
func ExampleResource() {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	objects, err := informer.New[*metav1.PartialObjectMetadata](&rest.Config{Host: "https://localhost"}, informer.Resource(widgets))
	fmt.Println(objects.State(), err)
	// Output: STOPPED <nil>
}
