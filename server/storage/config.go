package storage

import (
	"errors"
	"fmt"
	"path"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/source/etcd"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// Config describes what is stored where. All fields are required unless they say otherwise.
type Config struct {
	// Client reads and watches the resource. The caller owns it, and many storages may share it.
	Client *clientv3.Client
	// LastWrite is shared by storages of the same etcd; see etcd.LastWrite. It may be nil.
	LastWrite *etcd.LastWrite
	// Memory has the resource instead of an etcd; Client and LastWrite are nil then. The caller owns it.
	Memory *memory.DB
	// Etcd is k8s.io/apiserver's own storage of the same resource, on Client or on Memory.Client: it writes,
	// and reads what the watch cache can't. The caller owns it.
	Etcd apistorage.Interface
	// GroupResource names the resource in metrics and messages.
	GroupResource schema.GroupResource
	// Prefix and ResourcePrefix begin the keys, as for Etcd: "/registry" and "/pods".
	Prefix, ResourcePrefix string
	// Namespaced is true if keys are prefix/namespace/name, false if prefix/name; the function
	// [Namespaced] determines it. Keys of another form are ignored and counted, and the first one is
	// logged.
	Namespaced bool
	// CheckNames rejects an object whose metadata differs from its key in namespace or name: it
	// can't be read. An API server's keys always have the names of their objects.
	CheckNames bool
	// Codec and Transformer decode etcd's values, as for Etcd. A nil Transformer leaves them as
	// they are.
	Codec       runtime.Codec
	Transformer value.Transformer
	// NewFunc returns an empty object of the type that Codec decodes to; see
	// watchcache.Config.
	NewFunc func() runtime.Object
	// Served is the version in which the cache stores objects of an internal type; see
	// watchcache.Config. It may be nil.
	Served *watchcache.Version
	// GetAttrs returns the labels and fields that selectors use.
	GetAttrs apistorage.AttrFunc
	// Indexers find the objects of lists whose selectors require a value. They may be nil.
	Indexers *cache.Indexers
	// Unshared gives each watch copies of its own of the objects of events. Otherwise, watches share objects that
	// are runtime.CacheableObject, and a registry.Store.Decorator, which knows the resource's type only, leaves
	// them as they are stored.
	Unshared bool
	// Metrics counts for all storages that share it. Nil counts for this storage alone.
	Metrics *Metrics
	// Store bounds the history. The zero value has defaults. New sets Size, Slim and Attributes.
	Store store.Options
}

// cache returns the configuration of the watch cache.
func (c Config) cache() watchcache.Config {
	return watchcache.Config{
		GroupResource: c.GroupResource, ResourcePrefix: c.ResourcePrefix, Namespaced: c.Namespaced, CheckNames: c.CheckNames,
		SourceName: c.sourceName(), SourcePrefix: c.root(), Decrypt: c.decrypt(), Codec: c.Codec, NewFunc: c.NewFunc,
		Served: c.Served, GetAttrs: c.GetAttrs,
		Indexers: c.Indexers, Metrics: c.Metrics.cache, Store: c.Store,
	}
}

// sourceName returns the name of the source in messages.
func (c Config) sourceName() string {
	if c.Memory != nil {
		return "memory"
	}
	return "etcd"
}

// root returns the etcd key prefix of all objects, "/registry/pods/".
func (c Config) root() string {
	return path.Join("/", c.Prefix, c.ResourcePrefix) + "/"
}

// Namespaced reports whether the keys that keyOf makes are "namespace/name" below the prefix, as
// [Config.Namespaced] needs it. It fails if they are neither that nor "name".
func Namespaced(keyOf func(runtime.Object) (string, error), newFunc func() runtime.Object,
	resourcePrefix string) (bool, error) {
	example := newFunc()
	m, err := meta.Accessor(example)
	if err != nil {
		return false, err
	}
	const namespace, name = "namespace", "name"
	m.SetNamespace(namespace)
	m.SetName(name)
	key, err := keyOf(example)
	if err != nil {
		return false, err
	}
	switch below, _ := strings.CutPrefix(key, strings.TrimSuffix(resourcePrefix, "/")+"/"); below {
	case namespace + "/" + name:
		return true, nil
	case name:
		return false, nil
	}
	return false, fmt.Errorf("keys below %q are neither a namespace and a name nor a name: %q", resourcePrefix, key)
}

func (c Config) validate() error {
	if (c.Client == nil) == (c.Memory == nil) || c.Etcd == nil {
		return errors.New("a storage needs an etcd client or a database in memory, and the storage that writes")
	}
	return nil // the watch cache checks the rest
}
