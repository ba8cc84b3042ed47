package storage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/egressselector"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/internal/etcddial"
	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// Decorator returns the decorator that opens a [Storage] for each resource of an API server's
// RESTOptions. All of them count in metrics. Storages with the same transport share one connection to
// etcd for reading; writes use k8s.io/apiserver's. If an invariant of a storage does not hold, the
// process ends with a panic.
func Decorator(metrics *Metrics, options ...DecoratorOption) generic.StorageDecorator {
	var o decoratorOptions
	for _, set := range options {
		set(&o)
	}
	opened := connections{byKey: map[string]*connection{}}
	return func(config *storagebackend.ConfigForResource, resourcePrefix string,
		keyOf func(runtime.Object) (string, error),
		newFunc, newListFunc func() runtime.Object, attributes apistorage.AttrFunc, _ apistorage.IndexerFuncs,
		indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
		namespaced, err := Namespaced(keyOf, newFunc, resourcePrefix)
		if err != nil {
			return nil, nil, err
		}
		upstream, destroy, err := factory.Create(*config, newFunc, newListFunc, resourcePrefix)
		if err != nil {
			return nil, nil, err
		}
		connection, err := opened.open(config.Transport)
		if err != nil {
			destroy()
			return nil, nil, err
		}
		s, err := New(Config{
			Client: connection.client, LastWrite: &connection.lastWrite, Etcd: upstream, GroupResource: config.GroupResource,
			Prefix: config.Prefix, ResourcePrefix: resourcePrefix, Namespaced: namespaced, CheckNames: true,
			Codec: config.Codec, Transformer: config.Transformer,
			NewFunc: newFunc, Served: o.servedVersion(config, newFunc), GetAttrs: attributes, Indexers: indexers,
			Unshared: o.unshared[config.GroupResource], Metrics: metrics, Store: o.store,
		})
		if err != nil {
			opened.close(connection)
			destroy()
			return nil, nil, err
		}
		stop := s.Start(func(err error) { panic(err) }) // nothing else in the process would notice
		return s, sync.OnceFunc(func() {                // storages are destroyed once for each subresource
			stop()
			opened.close(connection)
			destroy()
		}), nil
	}
}

// DecoratorOption is an option of [Decorator].
type DecoratorOption func(*decoratorOptions)

type decoratorOptions struct {
	store    store.Options
	served   func(*storagebackend.ConfigForResource, func() runtime.Object) *watchcache.Version
	unshared map[schema.GroupResource]bool
}

// WithStore sets each [Config].Store, which bounds the history.
func WithStore(options store.Options) DecoratorOption {
	return func(o *decoratorOptions) { o.store = options }
}

// WithServed sets the function that returns [Config].Served of a resource, given the resource's NewFunc.
func WithServed(version func(*storagebackend.ConfigForResource,
	func() runtime.Object) *watchcache.Version) DecoratorOption {
	return func(o *decoratorOptions) { o.served = version }
}

// WithUnshared sets [Config].Unshared of some resources. The map must not change afterwards.
func WithUnshared(resources map[schema.GroupResource]bool) DecoratorOption {
	return func(o *decoratorOptions) { o.unshared = resources }
}

func (o decoratorOptions) servedVersion(config *storagebackend.ConfigForResource,
	newFunc func() runtime.Object) *watchcache.Version {
	if o.served == nil {
		return nil
	}
	return o.served(config, newFunc)
}

// connections are the connections to different etcds, each with the number of its storages.
type connections struct {
	mu    sync.Mutex
	byKey map[string]*connection
}

type connection struct {
	key       string
	client    *clientv3.Client
	lastWrite etcd.LastWrite
	users     int
}

func (c *connections) open(config storagebackend.TransportConfig) (*connection, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprint(config.ServerList, config.KeyFile, config.CertFile, config.TrustedCAFile)
	known := c.byKey[key]
	if known == nil {
		client, err := dial(config)
		if err != nil {
			return nil, err
		}
		known = &connection{key: key, client: client}
		c.byKey[key] = known
	}
	known.users++
	return known, nil
}

func (c *connections) close(known *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known.users--; known.users == 0 {
		delete(c.byKey, known.key)
		if err := known.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			klog.V(2).InfoS("The connection to etcd did not close", "err", err)
		}
	}
}

// dial connects as k8s.io/apiserver does, through the egress selector if there is one.
func dial(config storagebackend.TransportConfig) (*clientv3.Client, error) {
	var options []grpc.DialOption
	if config.EgressLookup != nil {
		through, err := config.EgressLookup(egressselector.Etcd.AsNetworkContext())
		if err != nil {
			return nil, err
		}
		if through != nil {
			options = append(options, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return through(ctx, "tcp", address)
			}))
		}
	}
	return etcddial.Dial(etcddial.Cluster{
		Servers: config.ServerList, CAFile: config.TrustedCAFile, CertFile: config.CertFile, KeyFile: config.KeyFile,
	}, options...)
}
