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

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/etcd"
	"github.com/keepwatch/keepwatch/store"
)

// Config says what is stored where. All is required but where it says otherwise.
type Config struct {
	// Client is what the resource is read and watched with. It stays the caller's and
	// may be shared by many storages.
	Client *clientv3.Client
	// Past is shared by storages of the same etcd; see etcd.Past. It may be nil.
	Past *etcd.Past
	// Etcd is k8s.io/apiserver's own storage of the same resource: it writes, and reads
	// what the store can't. It stays the caller's.
	Etcd apistorage.Interface
	// GroupResource is for messages.
	GroupResource schema.GroupResource
	// Prefix and ResourcePrefix are before the keys, as for Etcd: "/registry" and
	// "/pods".
	Prefix, ResourcePrefix string
	// Namespaced says that what follows in a key is "namespace/name"; otherwise it is the
	// name. Keys of another form are ignored, counted, and the first one is logged.
	Namespaced bool
	// CheckNames says that these are the object's namespace and name: an object that has others
	// cannot be read. An API server's always are, and [Namespaced] finds it out.
	CheckNames bool
	// Codec and Transformer make objects of what etcd holds, as for Etcd. A nil
	// Transformer leaves it as it is.
	Codec       runtime.Codec
	Transformer value.Transformer
	// NewFunc makes an empty object of the type that Codec decodes to. If that has
	// protobuf of its own, or is unstructured, objects are kept encoded as they are
	// served; see Object.Bytes.
	NewFunc func() runtime.Object
	// GetAttrs tells the labels and fields that selectors go by. It is called once for
	// each state of an object.
	GetAttrs apistorage.AttrFunc
	// Indexers find the objects of lists whose selectors ask for a value; may be nil.
	Indexers *cache.Indexers
	// Metrics are what the storage counts for; nil counts for nobody.
	Metrics *Metrics
	// Store bounds the history; the zero value will do. Size, Slim and
	// Attributes are set by New.
	Store store.Options
}

// root is the etcd key prefix of all objects, "/registry/pods/".
func (c Config) root() string {
	return path.Join("/", c.Prefix, c.ResourcePrefix) + "/"
}

// fits reports whether a key has the form of the resource's keys.
func (c Config) fits(key keepwatch.Key) bool {
	return (key.Namespace != "") == c.Namespaced && key.Name != "" && !strings.Contains(key.Name, "/")
}

// Namespaced reports whether an API server that names its objects' keys by keyOf keeps
// them by namespace, as [Config.Namespaced] says it. It fails if the keys are neither
// "namespace/name" nor "name" below the prefix.
func Namespaced(keyOf func(runtime.Object) (string, error), newFunc func() runtime.Object, resourcePrefix string) (bool, error) {
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
	switch {
	case c.Client == nil || c.Etcd == nil:
		return errors.New("a storage needs an etcd client and the storage that writes")
	case c.Codec == nil || c.NewFunc == nil || c.GetAttrs == nil:
		return errors.New("a storage needs a codec, and functions for new objects and for attributes")
	case !strings.HasPrefix(c.ResourcePrefix, "/") || strings.Trim(c.ResourcePrefix, "/") == "":
		return fmt.Errorf("the resource prefix must begin with \"/\" and name a resource: %q", c.ResourcePrefix)
	}
	if err := runtime.CheckCodec(c.Codec, c.NewFunc()); err != nil {
		return fmt.Errorf("the codec does not fit %s: %w", c.GroupResource, err)
	}
	return nil
}
