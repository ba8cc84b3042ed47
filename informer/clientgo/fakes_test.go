package clientgo_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// podsOf returns a ListerWatcher like those of the generated informers.
func podsOf(client kubernetes.Interface) cache.ListerWatcher {
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

// client-go's fake clientset gives neither UIDs nor resource versions.
func TestFakeClientset(t *testing.T) {
	client := fake.NewClientset(podtest.Pod("a"), podtest.Pod("b"))
	inf := clientgo.NewSharedIndexInformer(podsOf(client), &corev1.Pod{}, 0, nil)
	var events recorder
	handle, err := inf.AddEventHandler(&events)
	if err != nil {
		t.Fatal(err)
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf, handle)
	events.want(t, "add! a", "add! b")
	events.reset()
	pods := client.CoreV1().Pods("ns")
	ctx := t.Context()
	must(t)(pods.Update(ctx, podtest.Pod("a", podtest.Mark("1")), metav1.UpdateOptions{}))
	events.want(t, "update a to a[1]") // the watch is open now
	must(t)(pods.Update(ctx, podtest.Pod("a", podtest.Mark("2")), metav1.UpdateOptions{}))
	must(t)(pods.Create(ctx, podtest.Pod("c"), metav1.CreateOptions{}))
	if err := pods.Delete(ctx, "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must(t)(pods.Create(ctx, podtest.Pod("b", podtest.Mark("again")), metav1.CreateOptions{}))
	events.want(t, "update a to a[1]", "update a[1] to a[2]", "add c", "delete b", "add b[again]")
	if got := inf.GetStore().ListKeys(); len(got) != 3 {
		t.Errorf("the cache has %q", got)
	}
}

func must(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

// For returns a constructor for the factory's InformerFor.
func TestFactory(t *testing.T) {
	client := fake.NewClientset(podtest.Pod("a"))
	factory := informers.NewSharedInformerFactory(client, time.Hour)
	inf := factory.InformerFor(&corev1.Pod{}, clientgo.For(podsOf))
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	factory.WaitForCacheSync(ctx.Done())
	if _, ok := inf.(*clientgo.Shared); !ok {
		t.Errorf("the factory has a %T", inf)
	}
	found, err := factory.Core().V1().Pods().Lister().Pods("ns").Get("a")
	if err != nil || found.Name != "a" {
		t.Errorf("%v, %v", found, err)
	}
}

// A group's informers in a factory have its options, its health and a name.
func TestFactoryOfAGroup(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	var received requests
	s.Intercept(received.record)
	cfg, direct := clientgo.Direct(s.Config())
	group := clientgo.NewGroup(direct)
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(cfg), 0)
	factory.InformerFor(&corev1.Pod{}, group.For(&corev1.Pod{}, podsOf))
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	factory.WaitForCacheSync(ctx.Done())
	received.want(t, "keepwatch /api/v1/pods")
	if found, err := factory.Core().V1().Pods().Lister().Pods("ns").Get("a"); err != nil || found.Name != "a" {
		t.Errorf("%v, %v", found, err)
	}
	if status, ok := group.Status()["*v1.Pod"]; !ok || status.Objects != 1 {
		t.Errorf("the group has %v", group.Status())
	}
}

// FakeControllerSource gives resource versions, and no UIDs. It has an object from the start,
// because it answers a watch from 0 after the first change with 410.
func TestFakeControllerSource(t *testing.T) {
	source := newSource(t, podtest.Pod("z"))
	inf := clientgo.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil)
	var events recorder
	must(t)(inf.AddEventHandler(&events))
	stop := podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	source.Add(podtest.Pod("a"))
	source.Modify(podtest.Pod("a", podtest.Mark("1")))
	source.Delete(podtest.Pod("a"))
	source.Add(podtest.Pod("a", podtest.Mark("new")))
	events.want(t, "add! z@1", "add a@2", "update a@2 to a@3[1]", "delete a@4", "add a@5[new]")
	if got := inf.LastSyncResourceVersion(); got != "5" {
		t.Errorf("LastSyncResourceVersion is %q", got)
	}
	events.reset()

	source.ModifyDropWatch(podtest.Pod("a", podtest.Mark("unseen")))
	source.AddDropWatch(podtest.Pod("b"))
	source.ResetWatch()
	events.want(t, "update a@5[new] to a@6[unseen]", "add b@7")
	stop()
}

func TestDynamicFactory(t *testing.T) {
	widget := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"namespace": "ns", "name": name},
		}}
	}
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{widgets: "WidgetList"}, widget("a"))
	factory := clientgo.NewDynamicSharedInformerFactory(client, 0)
	var events recorder
	must(t)(factory.ForResource(widgets).Informer().AddEventHandler(&events))
	stop := make(chan struct{})
	factory.Start(stop)
	defer factory.Shutdown()
	defer close(stop)
	if synced := factory.WaitForCacheSync(stop); !synced[widgets] {
		t.Fatalf("synced: %v", synced)
	}
	must(t)(client.Resource(widgets).Namespace("ns").Create(t.Context(), widget("b"), metav1.CreateOptions{}))
	events.want(t, "add! a", "add b")
	list, err := factory.ForResource(widgets).Lister().ByNamespace("ns").List(labels.Everything())
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
}

// A group's dynamic informers have its options, and are its members.
func TestDynamicFactoryOfAGroup(t *testing.T) {
	s := podtest.NewServer(t, podtest.Pod("a"))
	var received requests
	s.Intercept(received.record)
	cfg, direct := clientgo.Direct(s.Config())
	group := clientgo.NewGroup(direct)
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	factory := group.NewDynamicSharedInformerFactory(client, 0)
	inf := factory.ForResource(resource).Informer()
	stop := make(chan struct{})
	defer factory.Shutdown()
	defer close(stop)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	received.want(t, "keepwatch /api/v1/pods")
	if got := inf.GetStore().ListKeys(); !slices.Equal(got, []string{"ns/a"}) {
		t.Errorf("the cache has %q", got)
	}
	if n := len(group.Status()); n != 1 {
		t.Errorf("the group has %d members", n)
	}
}

// A unit test can put objects into the cache before the first list.
func TestWritesBeforeTheFirstList(t *testing.T) {
	client := fake.NewClientset(podtest.Pod("real"))
	inf := clientgo.NewSharedIndexInformer(podsOf(client), &corev1.Pod{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := inf.GetStore().Add(podtest.Pod("seed")); err != nil {
		t.Fatal(err)
	}
	if found, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "ns"); err != nil || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
	if inf.HasSynced() {
		t.Error("a seed is no list")
	}
	podtest.Run(t, inf)
	podtest.WaitForSync(t, inf)
	if keys := inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"ns/real"}) {
		t.Errorf("the cache has %q", keys)
	}
	if err := inf.GetIndexer().Add(podtest.Pod("late")); err == nil {
		t.Error("the cache of a server's objects was written")
	}
}
