package controlplane

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/garbage"
	"github.com/keepwatch/keepwatch/server/customreaders"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// rootPrefix is the prefix of all keys, as in kube-apiserver.
	rootPrefix = "/registry"
	// deleteCollectionWorkers is the number of objects that one DELETE of a collection deletes at a time.
	deleteCollectionWorkers = 4
)

// backend stores all resources in one database. With StoreStorage, package storage reads, and
// k8s.io/apiserver's etcd3 storage writes. With UpstreamStorage, k8s.io/apiserver does both.
type backend struct {
	database
	// failed is done when a storage ends before it is closed; fail cancels it with the cause.
	failed   context.Context
	fail     context.CancelCauseFunc
	kind     Storage
	history  WatchHistory
	registry metrics.KubeRegistry // of this server's own metrics
	// collector follows the objects of all storages that are opened; nil without controllers.
	collector *garbage.Collector
	metrics   *storage.Metrics

	mu   sync.Mutex
	open map[*storage.Storage]func() // the storages that are not closed, and how to close them
}

// database has the objects of all resources: an etcd, or memory.
type database interface {
	// writer returns the client and the compactor of k8s.io/apiserver's etcd3 storage of the keys below a prefix.
	writer(prefix string) (*kubernetes.Client, etcd3.Compactor)
	// reader sets where a storage reads.
	reader(config *storage.Config)
	// compact drops the history before the newest revision.
	compact(ctx context.Context) error
	// ping and hasSpace are health checks: that the database answers, and that it accepts writes.
	ping(ctx context.Context) error
	hasSpace(ctx context.Context) error
	// readOnly reports whether the database belongs to another server.
	readOnly() bool
	close()
}

func newBackend(database database, registry metrics.KubeRegistry, kind Storage, history WatchHistory) *backend {
	b := &backend{
		database: database, kind: kind, history: history, registry: registry, metrics: storage.NewMetrics(registry),
		open: map[*storage.Storage]func(){},
	}
	b.failed, b.fail = context.WithCancelCause(context.Background())
	return b
}

// close closes the storages that are still open, and the database. apiextensions-apiserver closes the storage of a
// deleted definition a second later, or a minute after the last watch has ended.
func (b *backend) close() {
	b.mu.Lock()
	left := slices.Collect(maps.Values(b.open))
	b.mu.Unlock()
	for _, stop := range left {
		stop()
	}
	b.database.close()
	b.fail(nil)
}

// dropHistory makes reads and watches from any earlier revision fail with Expired. Watches that have begun
// continue.
func (b *backend) dropHistory(ctx context.Context) error {
	if err := b.compact(ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for s := range b.open {
		if _, err := s.Cache().WaitForNewest(ctx); err != nil {
			return err
		}
		s.Cache().DropHistory()
	}
	return nil
}

// options returns the storage options of one resource.
func (b *backend) options(resource schema.GroupResource, prefix string, codec runtime.Codec,
	version runtime.GroupVersioner) generic.RESTOptions {
	config := storagebackend.NewDefaultConfig(rootPrefix, codec)
	config.EncodeVersioner = version
	decorator := b.openStorage
	if b.kind == UpstreamStorage {
		decorator = b.openUpstream
	}
	return generic.RESTOptions{
		StorageConfig:           config.ForResource(resource),
		Decorator:               decorator,
		DeleteCollectionWorkers: deleteCollectionWorkers,
		ResourcePrefix:          prefix,
		CountMetricPollPeriod:   time.Minute,
	}
}

// openStorage opens the storage of one resource.
func (b *backend) openStorage(config *storagebackend.ConfigForResource, prefix string,
	keyOf func(runtime.Object) (string, error),
	newObject, newList func() runtime.Object, attributes apistorage.AttrFunc, _ apistorage.IndexerFuncs,
	indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
	namespaced, err := storage.Namespaced(keyOf, newObject, prefix)
	if err != nil {
		return nil, nil, err
	}
	upstream, err := b.etcd3(config, prefix, newObject, newList)
	if err != nil {
		return nil, nil, err
	}
	described := storage.Config{
		Etcd:           upstream,
		GroupResource:  config.GroupResource,
		Prefix:         config.Prefix,
		ResourcePrefix: prefix,
		Namespaced:     namespaced,
		CheckNames:     true,
		Codec:          config.Codec,
		NewFunc:        newObject,
		GetAttrs:       attributes,
		Indexers:       indexers,
		Metrics:        b.metrics,
		Store:          store.Options{WindowBytes: b.history.Bytes, WindowAge: b.history.Age},
	}
	b.reader(&described)
	stored, err := storage.New(described)
	if err != nil {
		upstream.Close()
		return nil, nil, err
	}
	return stored, b.start(stored, upstream), nil
}

// start runs a storage. It returns how to close it and the storage that writes for it.
func (b *backend) start(stored *storage.Storage, upstream closable) (stop func()) {
	end := stored.Start(b.fail)
	stop = sync.OnceFunc(func() {
		end()
		upstream.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, stored)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[stored] = stop
	return stop
}

// closable is k8s.io/apiserver's etcd3 storage.
type closable interface {
	apistorage.Interface
	Close()
}

// etcd3 returns k8s.io/apiserver's storage without its watch cache.
func (b *backend) etcd3(config *storagebackend.ConfigForResource, prefix string, newObject,
	newList func() runtime.Object) (closable, error) {
	client, compactor := b.writer(path.Join("/", config.Prefix, prefix) + "/")
	return newEtcd3(client, compactor, config, prefix, newObject, newList)
}

func newEtcd3(client *kubernetes.Client, compactor etcd3.Compactor, config *storagebackend.ConfigForResource,
	prefix string,
	newObject, newList func() runtime.Object) (closable, error) {
	versioner := apistorage.APIObjectVersioner{}
	upstream, err := etcd3.New(client, compactor, config.Codec, newObject, newList, config.Prefix, prefix,
		config.GroupResource,
		identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig, etcd3.NewDefaultDecoder(config.Codec, versioner),
		versioner)
	if err != nil {
		return nil, err
	}
	return spaceErrors{upstream}, nil
}

// builtinOptions are the options of the built-in resources: protobuf, with the keys of kube-apiserver.
type builtinOptions struct {
	*backend
	kinds *builtin.Registry
}

func (o builtinOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	stored, ok := o.kinds.Stored(resource)
	if !ok {
		return generic.RESTOptions{}, fmt.Errorf("%s is not a built-in resource", resource)
	}
	options := o.options(resource, stored.Prefix, stored.Codec, stored.Version)
	return o.collected(options), nil
}

// definitionOptions are the options of CustomResourceDefinitions: JSON.
type definitionOptions struct{ *backend }

func (o definitionOptions) GetRESTOptions(resource schema.GroupResource,
	_ runtime.Object) (generic.RESTOptions, error) {
	version := schema.GroupVersions{apiextensionsv1.SchemeGroupVersion}
	options := o.options(resource, resource.Group+"/"+resource.Resource, apiserver.Codecs.LegacyCodec(version...), version)
	return o.collected(options), nil
}

// customOptions are the options of custom resources: JSON. Their storages have readers.
type customOptions struct {
	*backend
	readers *customreaders.Readers
}

func (o customOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	options := o.options(resource, resource.Group+"/"+resource.Resource, unstructured.UnstructuredJSONScheme, nil)
	if o.kind == StoreStorage {
		options.Decorator = o.readers.Decorator(o.openStorage)
	}
	return o.collected(options), nil
}
