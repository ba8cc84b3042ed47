package controlplane

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/keepwatch/keepwatch/controlplane/builtin"
)

const (
	// rootPrefix is before all keys, as in kube-apiserver.
	rootPrefix = "/registry"
	// compactInterval is the age at which etcd forgets old revisions, as in kube-apiserver.
	compactInterval = 5 * time.Minute
	dialTimeout     = 20 * time.Second
	// deleteCollectionWorkers is how many objects of one DELETE of a collection go at a time.
	deleteCollectionWorkers = 4
)

// backend stores all resources in one etcd: the library's etcd3 storage behind its watch cache,
// over one shared client connection.
type backend struct {
	client    *clientv3.Client
	compactor interface {
		etcd3.Compactor
		Stop()
	}
}

// openBackend connects to etcd and starts to compact it.
func openBackend(ctx context.Context, cluster EtcdCluster) (*backend, error) {
	config := clientv3.Config{
		Endpoints:            cluster.Servers,
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    30 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		Logger:               zap.NewNop(),
	}
	if cluster.CAFile != "" || cluster.CertFile != "" {
		files := transport.TLSInfo{CertFile: cluster.CertFile, KeyFile: cluster.KeyFile, TrustedCAFile: cluster.CAFile}
		tls, err := files.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot use etcd's certificate files: %w", err)
		}
		config.TLS = tls
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("cannot use etcd at %v: %w", cluster.Servers, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := client.Get(ctx, rootPrefix, clientv3.WithCountOnly()); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd at %s doesn't answer: %w; check the address, the certificates, and that it runs", strings.Join(cluster.Servers, ", "), err)
	}
	feature.DefaultFeatureSupportChecker.CheckClient(client.Ctx(), client, storage.RequestWatchProgress)
	return &backend{client: client, compactor: etcd3.NewCompactor(client, compactInterval, clock.RealClock{}, nil)}, nil
}

func (b *backend) close() {
	b.compactor.Stop()
	b.client.Close()
}

// options are how one resource is stored. To store resources some other way, replace them.
func (b *backend) options(resource schema.GroupResource, prefix string, codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptions {
	config := storagebackend.NewDefaultConfig(rootPrefix, codec)
	config.EncodeVersioner = version
	return generic.RESTOptions{
		StorageConfig:           config.ForResource(resource),
		Decorator:               b.open,
		DeleteCollectionWorkers: deleteCollectionWorkers,
		ResourcePrefix:          prefix,
		CountMetricPollPeriod:   time.Minute,
	}
}

// open is the storage of one resource.
func (b *backend) open(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
	newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs,
	indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
	client, watcher := b.clientOf()
	versioner := storage.APIObjectVersioner{}
	raw, err := etcd3.New(client, b.compactor, config.Codec, newObject, newList, config.Prefix, prefix, config.GroupResource,
		identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig, etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
	if err != nil {
		watcher.Close()
		return nil, nil, err
	}
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage:             raw,
		Versioner:           versioner,
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
		raw.Close()
		watcher.Close()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, raw)
	return delegator, sync.OnceFunc(func() {
		delegator.Stop()
		cached.Stop()
		raw.Close()
		watcher.Close()
	}), nil
}

// clientOf is the shared connection with watches of its own: the progress of one resource's watch
// must not wait for another's events.
func (b *backend) clientOf() (*kubernetes.Client, clientv3.Watcher) {
	own := clientv3.NewCtxClient(b.client.Ctx())
	own.KV = etcd3.NewETCDLatencyTracker(b.client.KV)
	own.Lease, own.Maintenance = b.client.Lease, b.client.Maintenance
	own.Watcher = clientv3.NewWatcher(b.client)
	client := &kubernetes.Client{Client: own}
	client.Kubernetes = client
	return client, own.Watcher
}

// builtinOptions are for the built-in resources: protobuf, below the folders a real server uses.
type builtinOptions struct {
	*backend
	kinds *builtin.Registry
}

func (o builtinOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	stored, ok := o.kinds.Stored(resource)
	if !ok {
		return generic.RESTOptions{}, fmt.Errorf("%s is no built-in resource", resource)
	}
	return o.options(resource, stored.Prefix, stored.Codec, stored.Version), nil
}

// definitionOptions are for CustomResourceDefinitions: JSON.
type definitionOptions struct{ *backend }

func (o definitionOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	version := schema.GroupVersions{apiextensionsv1.SchemeGroupVersion}
	return o.options(resource, resource.Group+"/"+resource.Resource, apiserver.Codecs.LegacyCodec(version...), version), nil
}

// customOptions are for custom resources: JSON.
type customOptions struct{ *backend }

func (o customOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	return o.options(resource, resource.Group+"/"+resource.Resource, unstructured.UnstructuredJSONScheme, nil), nil
}

// ping asks etcd for nothing, as a health check.
func (b *backend) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storagebackend.DefaultHealthcheckTimeout)
	defer cancel()
	_, err := b.client.Get(ctx, rootPrefix+"/health")
	return err
}
