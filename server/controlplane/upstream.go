package controlplane

import (
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// openUpstream opens the library's storage of one resource: etcd3 behind its watch cache.
func (b *backend) openUpstream(config *storagebackend.ConfigForResource, prefix string,
	key func(runtime.Object) (string, error),
	newObject, newList func() runtime.Object, attributes apistorage.AttrFunc, triggers apistorage.IndexerFuncs,
	indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
	// A watcher of its own: the progress of one resource's watch must not wait for another's events.
	database := b.database.(*etcdDatabase) // Options.complete allows no other
	watcher := clientv3.NewWatcher(database.client)
	etcd, err := newEtcd3(database.writerWatching(watcher), database.compactor, config, prefix, newObject, newList)
	if err != nil {
		watcher.Close()
		return nil, nil, err
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             etcd,
		Versioner:           etcd.Versioner(),
		GroupResource:       config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow,
		ResourcePrefix:      prefix,
		KeyFunc:             key,
		NewFunc:             newObject,
		NewListFunc:         newList,
		GetAttrsFunc:        attributes,
		IndexerFuncs:        triggers,
		Indexers:            indexers,
		Codec:               config.Codec,
	})
	if err != nil {
		etcd.Close()
		watcher.Close()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, etcd)
	return delegator, sync.OnceFunc(func() {
		delegator.Stop()
		cached.Stop()
		etcd.Close()
		watcher.Close()
	}), nil
}
