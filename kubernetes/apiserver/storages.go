package apiserver

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/events"

	"github.com/keepwatch/keepwatch/server/customreaders"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/store"
)

// storages opens our storage for every resource that kube-apiserver would have a watch cache for.
// It is safe for concurrent use.
type storages struct {
	decorate generic.StorageDecorator

	mu     sync.Mutex
	opened map[schema.GroupResource]openedStorage
}

// openedStorage is the storage of a built-in resource, and the attributes that its selectors use.
type openedStorage struct {
	*storage.Storage
	attributes apistorage.AttrFunc
	newFunc    func() runtime.Object
}

// storageMetrics are the metrics of all storages of the process, as its registry is that of all servers.
var storageMetrics = sync.OnceValue(func() *storage.Metrics { return storage.NewMetrics(registry{}) })

// useStorages wraps the RESTOptions of all servers of config. The storages of custom resources have
// readers.
func useStorages(config *app.Config, etcd *genericoptions.EtcdOptions, history store.Options,
	readers *customreaders.Readers) (*storages, error) {
	s := &storages{decorate: storage.Decorator(storageMetrics(), storage.WithServed(servedVersion),
		storage.WithUnshared(completed), storage.WithStore(history)), opened: map[schema.GroupResource]openedStorage{}}
	if !etcd.EnableWatchCache {
		return s, nil
	}
	sizes, err := genericoptions.ParseWatchCacheSizes(etcd.WatchCacheSizes)
	if err != nil {
		return nil, err
	}
	builtin := func(getter *generic.RESTOptionsGetter) { *getter = restOptions{*getter, s.openBuiltin, sizes} }
	if kube := config.KubeAPIs; kube != nil {
		builtin(&kube.ControlPlane.Generic.RESTOptionsGetter)
	}
	if aggregator := config.Aggregator; aggregator != nil {
		builtin(&aggregator.GenericConfig.RESTOptionsGetter)
	}
	if extensions := config.ApiExtensions; extensions != nil {
		builtin(&extensions.GenericConfig.RESTOptionsGetter)
		custom := &extensions.ExtraConfig.CRDRESTOptionsGetter
		// --watch-cache-sizes does not apply to custom resources
		*custom = restOptions{*custom, readers.Decorator(s.decorate), nil}
	}
	return s, nil
}

// openBuiltin opens the storage of a built-in resource and remembers it.
func (s *storages) openBuiltin(config *storagebackend.ConfigForResource, prefix string,
	keyOf func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes apistorage.AttrFunc, triggers apistorage.IndexerFuncs,
	indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
	opened, destroy, err := s.decorate(config, prefix, keyOf, newFunc, newListFunc, attributes, triggers, indexers)
	if ours, ok := opened.(*storage.Storage); ok && err == nil {
		s.mu.Lock()
		s.opened[config.GroupResource] = openedStorage{ours, attributes, newFunc}
		s.mu.Unlock()
	}
	return opened, destroy, err
}

// waitWarmed waits until the watch caches of all built-in resources have decoded the objects that they read
// at the start. All storages must have been opened.
func (s *storages) waitWarmed(ctx context.Context) error {
	for _, opened := range s.opened {
		select {
		case <-opened.Cache().Warmed():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// of returns the storage of the objects of a resource.
func (s *storages) of(resource schema.GroupResource) (openedStorage, bool) {
	if resource == (schema.GroupResource{Group: events.GroupName, Resource: "events"}) {
		// in both groups they are the same objects (storage.DefaultStorageFactory.AddCohabitatingResources)
		resource.Group = api.GroupName
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	opened, ok := s.opened[resource]
	return opened, ok
}

// restOptions are a server's RESTOptions with our decorator.
type restOptions struct {
	generic.RESTOptionsGetter
	decorator generic.StorageDecorator
	sizes     map[schema.GroupResource]int
}

// GetRESTOptions returns the options of one resource. A size of 0 in --watch-cache-sizes leaves a
// resource without a cache, as in kube-apiserver.
func (r restOptions) GetRESTOptions(resource schema.GroupResource,
	example runtime.Object) (generic.RESTOptions, error) {
	options, err := r.RESTOptionsGetter.GetRESTOptions(resource, example)
	if size, ok := r.sizes[resource]; err == nil && (!ok || size > 0) {
		options.Decorator = r.decorator
	}
	return options, err
}
