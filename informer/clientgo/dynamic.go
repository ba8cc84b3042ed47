package clientgo

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

var _ dynamicinformer.DynamicSharedInformerFactory = (*dynamicFactory)(nil)

// NewDynamicSharedInformerFactory replaces dynamicinformer's. It returns a factory of informers
// of unstructured objects, by resource, in all namespaces.
func NewDynamicSharedInformerFactory(client dynamic.Interface,
	resync time.Duration) dynamicinformer.DynamicSharedInformerFactory {
	return NewGroup().NewDynamicSharedInformerFactory(client, resync)
}

// NewFilteredDynamicSharedInformerFactory is NewDynamicSharedInformerFactory for one namespace.
// tweak changes the options of every list and watch.
func NewFilteredDynamicSharedInformerFactory(client dynamic.Interface, resync time.Duration, namespace string,
	tweak dynamicinformer.TweakListOptionsFunc) dynamicinformer.DynamicSharedInformerFactory {
	return NewGroup().NewFilteredDynamicSharedInformerFactory(client, resync, namespace, tweak)
}

// NewDynamicSharedInformerFactory returns a factory of informers of the group; see the function
// of the same name.
func (g *Group) NewDynamicSharedInformerFactory(client dynamic.Interface,
	resync time.Duration) dynamicinformer.DynamicSharedInformerFactory {
	return g.NewFilteredDynamicSharedInformerFactory(client, resync, metav1.NamespaceAll, nil)
}

// NewFilteredDynamicSharedInformerFactory returns a factory of informers of the group; see the
// function of the same name.
func (g *Group) NewFilteredDynamicSharedInformerFactory(client dynamic.Interface, resync time.Duration,
	namespace string, tweak dynamicinformer.TweakListOptionsFunc) dynamicinformer.DynamicSharedInformerFactory {
	return &dynamicFactory{
		group: g, client: client, resync: resync, namespace: namespace, tweak: tweak,
		informers: map[schema.GroupVersionResource]*dynamicInformer{},
	}
}

type dynamicFactory struct {
	group     *Group
	client    dynamic.Interface
	resync    time.Duration
	namespace string
	tweak     dynamicinformer.TweakListOptionsFunc

	mu        sync.Mutex
	informers map[schema.GroupVersionResource]*dynamicInformer
	stopping  bool // Shutdown was called
	running   sync.WaitGroup
}

type dynamicInformer struct {
	resource schema.GroupVersionResource
	shared   *Shared
	started  bool // guarded by the factory's mu
}

func (i *dynamicInformer) Informer() cache.SharedIndexInformer { return i.shared }

func (i *dynamicInformer) Lister() cache.GenericLister {
	return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(i.shared.GetIndexer(), i.resource))
}

// ForResource returns the informer of a resource. The first call creates it.
func (f *dynamicFactory) ForResource(resource schema.GroupVersionResource) informers.GenericInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, ok := f.informers[resource]
	if !ok {
		i = &dynamicInformer{resource: resource, shared: newShared(
			dynamicListerWatcher(f.client, resource, f.namespace, f.tweak), &unstructured.Unstructured{}, f.resync,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, f.group,
		)}
		f.informers[resource] = i
	}
	return i
}

// dynamicListerWatcher returns a ListerWatcher of unstructured objects.
func dynamicListerWatcher(client dynamic.Interface, resource schema.GroupVersionResource, namespace string,
	tweak func(*metav1.ListOptions)) cache.ListerWatcher {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	objects := client.Resource(resource).Namespace(namespace)
	return &dynamicListWatch{client: client, ListWatch: cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			tweak(&options)
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			tweak(&options)
			return objects.Watch(ctx, options)
		},
	}}
}

// dynamicListWatch passes on that a client has no streaming lists, as the fake ones do.
type dynamicListWatch struct {
	cache.ListWatch
	client any
}

// IsWatchListSemanticsUnSupported is the method that client-go's reflector asks for, from v0.35 on.
func (l *dynamicListWatch) IsWatchListSemanticsUnSupported() bool {
	c, ok := l.client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && c.IsWatchListSemanticsUnSupported()
}

// Start starts the informers that ForResource has returned and that were not started.
func (f *dynamicFactory) Start(stop <-chan struct{}) { f.start(wait.ContextForChannel(stop)) }

func (f *dynamicFactory) start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopping {
		return
	}
	for _, i := range f.informers {
		if !i.started {
			i.started = true
			f.running.Go(func() { i.shared.RunWithContext(ctx) })
		}
	}
}

// WaitForCacheSync waits until the started informers have synced, or until stop is closed, and
// returns which have.
func (f *dynamicFactory) WaitForCacheSync(stop <-chan struct{}) map[schema.GroupVersionResource]bool {
	f.mu.Lock()
	started := map[schema.GroupVersionResource]*Shared{}
	for resource, i := range f.informers {
		if i.started {
			started[resource] = i.shared
		}
	}
	f.mu.Unlock()
	synced := make(map[schema.GroupVersionResource]bool, len(started))
	for resource, i := range started {
		select {
		case <-i.follower.Synced():
		case <-stop:
		}
		synced[resource] = i.HasSynced()
	}
	return synced
}

// Shutdown waits until the informers have stopped; their stop channels must be closed. Later
// calls of Start do nothing.
func (f *dynamicFactory) Shutdown() {
	f.mu.Lock()
	f.stopping = true
	f.mu.Unlock()
	f.running.Wait()
}
