package controlplane

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"github.com/keepwatch/keepwatch/controlplane/builtin"
	"github.com/keepwatch/keepwatch/controlplane/internal/embeddedetcd"
	"github.com/keepwatch/keepwatch/internal/customreaders"
	"github.com/keepwatch/keepwatch/internal/etcddial"
	"github.com/keepwatch/keepwatch/source/etcd"
	"github.com/keepwatch/keepwatch/storage"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// rootPrefix is the prefix of all keys, as in kube-apiserver.
	rootPrefix = "/registry"
	// compactInterval is the age at which old revisions are compacted, as in kube-apiserver.
	compactInterval = 5 * time.Minute
	dialTimeout     = etcddial.Timeout
	// deleteCollectionWorkers is the number of objects that one DELETE of a collection deletes at a time.
	deleteCollectionWorkers = 4
)

// backend stores all resources in one etcd, over one shared client connection. With StoreStorage,
// package storage reads, and k8s.io/apiserver's etcd3 storage writes. With UpstreamStorage,
// k8s.io/apiserver does both.
type backend struct {
	client    *clientv3.Client
	lastWrite etcd.LastWrite
	// failed is done when a storage ends before it is closed; fail cancels it with the cause.
	failed    context.Context
	fail      context.CancelCauseFunc
	kind      Storage
	history   WatchHistory
	writes    *writeInterceptor
	foreign   string               // a key of another server; empty if the etcd is this server's own
	registry  metrics.KubeRegistry // of this server's own metrics
	metrics   *storage.Metrics
	compactor interface {
		etcd3.Compactor
		Stop()
	}
}

// openBackend connects to etcd, decides whether etcd is this server's own (always if own is true),
// and starts to compact it if it is.
func openBackend(ctx context.Context, cluster EtcdCluster, kind Storage, history WatchHistory, own bool) (*backend, error) {
	registry := metrics.NewKubeRegistry()
	b := &backend{kind: kind, history: history, writes: &writeInterceptor{}, registry: registry, metrics: storage.NewMetrics(registry)}
	client, err := etcddial.Dial(etcddial.Cluster(cluster), grpc.WithChainUnaryInterceptor(b.writes.intercept))
	if err != nil {
		return nil, err
	}
	b.client = client
	if err := b.claim(ctx, own); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd at %s doesn't answer: %w; check the address, the certificates, and that it runs", strings.Join(cluster.Servers, ", "), err)
	}
	interval := compactInterval
	if b.readOnly() {
		interval = 0 // never
	}
	b.compactor = etcd3.NewCompactor(client, interval, clock.RealClock{}, nil)
	b.failed, b.fail = context.WithCancelCause(context.Background())
	return b, nil
}

// checkFeatures starts the check of etcd's features for the etcd3 storages, in the background. It is
// called after the data was verified: the library logs an error if the end of a start interrupts the
// check.
func (b *backend) checkFeatures() {
	feature.DefaultFeatureSupportChecker.CheckClient(b.client.Ctx(), b.client, apistorage.RequestWatchProgress)
}

func (b *backend) close() {
	b.compactor.Stop()
	b.client.Close()
	b.fail(nil)
}

// options returns the storage options of one resource.
func (b *backend) options(resource schema.GroupResource, prefix string, codec runtime.Codec, version runtime.GroupVersioner) generic.RESTOptions {
	config := storagebackend.NewDefaultConfig(rootPrefix, codec)
	config.EncodeVersioner = version
	decorator := b.open
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

// open opens the storage of one resource.
func (b *backend) open(config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
	newObject, newList func() runtime.Object, attributes apistorage.AttrFunc, _ apistorage.IndexerFuncs,
	indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
	namespaced, err := storage.Namespaced(keyOf, newObject, prefix)
	if err != nil {
		return nil, nil, err
	}
	upstream, err := b.etcd3(config, prefix, newObject, newList, b.client.Watcher)
	if err != nil {
		return nil, nil, err
	}
	stored, err := storage.New(storage.Config{
		Client:         b.client,
		LastWrite:      &b.lastWrite,
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
	})
	if err != nil {
		upstream.Close()
		return nil, nil, err
	}
	stop := stored.Start(b.fail)
	return stored, sync.OnceFunc(func() {
		stop()
		upstream.Close()
	}), nil
}

// closable is k8s.io/apiserver's etcd3 storage.
type closable interface {
	apistorage.Interface
	Close()
}

// etcd3 returns k8s.io/apiserver's storage without its watch cache, over the shared connection.
func (b *backend) etcd3(config *storagebackend.ConfigForResource, prefix string, newObject, newList func() runtime.Object,
	watcher clientv3.Watcher) (closable, error) {
	own := clientv3.NewCtxClient(b.client.Ctx())
	own.KV = etcd3.NewETCDLatencyTracker(b.client.KV)
	own.Lease, own.Maintenance, own.Watcher = b.client.Lease, b.client.Maintenance, watcher
	client := &kubernetes.Client{Client: own}
	client.Kubernetes = client
	versioner := apistorage.APIObjectVersioner{}
	upstream, err := etcd3.New(client, b.compactor, config.Codec, newObject, newList, config.Prefix, prefix, config.GroupResource,
		identity.NewEncryptCheckTransformer(), config.LeaseManagerConfig, etcd3.NewDefaultDecoder(config.Codec, versioner), versioner)
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
	return o.options(resource, stored.Prefix, stored.Codec, stored.Version), nil
}

// definitionOptions are the options of CustomResourceDefinitions: JSON.
type definitionOptions struct{ *backend }

func (o definitionOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	version := schema.GroupVersions{apiextensionsv1.SchemeGroupVersion}
	return o.options(resource, resource.Group+"/"+resource.Resource, apiserver.Codecs.LegacyCodec(version...), version), nil
}

// customOptions are the options of custom resources: JSON. Their storages have readers.
type customOptions struct {
	*backend
	readers *customreaders.Readers
}

func (o customOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	options := o.options(resource, resource.Group+"/"+resource.Resource, unstructured.UnstructuredJSONScheme, nil)
	if o.kind == StoreStorage {
		options.Decorator = o.readers.Decorator(o.open)
	}
	return options, nil
}

// ping reads one key of etcd, as a health check.
func (b *backend) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storagebackend.DefaultHealthcheckTimeout)
	defer cancel()
	_, err := b.client.Get(ctx, rootPrefix+"/health")
	return err
}

// hasSpace returns an error while etcd refuses writes because it has no space, as a health check.
func (b *backend) hasSpace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storagebackend.DefaultHealthcheckTimeout)
	defer cancel()
	status, err := pb.NewMaintenanceClient(b.client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	if err == nil && embeddedetcd.HasNoSpaceAlarm(status) {
		return errNoSpace
	}
	return nil // ping reports that etcd is unavailable
}
