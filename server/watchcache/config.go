package watchcache

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Config describes one resource. All fields are required unless they say otherwise.
type Config struct {
	// GroupResource names the resource in metrics and messages.
	GroupResource schema.GroupResource
	// ResourcePrefix begins the keys of requests: "/pods".
	ResourcePrefix string
	// Namespaced is true if keys are prefix/namespace/name, false if prefix/name.
	Namespaced bool
	// CheckNames rejects an object whose metadata differs from its key in namespace or name: it
	// can't be read.
	CheckNames bool
	// SourceName names the source in messages: "etcd". SourcePrefix begins the source's keys there:
	// "/registry/pods/".
	SourceName, SourcePrefix string
	// Decrypt returns the source's bytes of an object as Codec reads them. Nil leaves them as
	// they are. Any goroutine calls it.
	Decrypt func(ctx context.Context, key keepwatch.Key, encoded []byte) ([]byte, error)
	// Codec decodes the source's bytes.
	Codec runtime.Codec
	// NewFunc returns an empty object of the type that Codec decodes to. If that type has
	// protobuf of its own, or is unstructured, the cache stores objects in the encoding in which
	// they are served; see [Object.Bytes].
	NewFunc func() runtime.Object
	// Served is the version in which objects are served whose Go type is internal to a server. The
	// cache stores its protobuf. Nil stores objects of internal types in the source's encoding.
	Served *Version
	// GetAttrs returns the labels and fields that selectors use. The cache calls it once for each
	// state of an object.
	GetAttrs apistorage.AttrFunc
	// Sharded makes the cache know shard selectors (KEP-5866) whether the API server's feature gate
	// ShardedListAndWatch is on or not.
	Sharded bool
	// Indexers find the objects of lists whose selectors require a value. They may be nil.
	Indexers *cache.Indexers
	// Metrics counts for all caches that share it. Nil counts for this cache alone.
	Metrics *Metrics
	// Store bounds the history, and has the records that the cache begins with. The zero value has defaults. New
	// sets Size, Slim, Attributes, Term and Deleted.
	Store store.Options
	// Compacted returns the newest revision that the source has compacted. The source answers a page of a list at an
	// older revision, with its 410, although the cache may have the state: Kubernetes' conformance tests want continue
	// tokens to expire with the history of etcd, and the token of a first page would already be expired. Nil lets continue
	// tokens be valid as long as the cache has the state. Any goroutine calls it.
	Compacted func() keepwatch.Revision
	// Deleted returns the source's object, and its bytes, for a deletion of which only the record is known.
	// Required if Store has records.
	Deleted func(store.Record) (keepwatch.Object, []byte)
}

func (c Config) validate() error {
	switch {
	case c.Codec == nil || c.NewFunc == nil || c.GetAttrs == nil:
		return errors.New("a watch cache needs a codec, and functions for new objects and for attributes")
	case !strings.HasPrefix(c.ResourcePrefix, "/") || strings.Trim(c.ResourcePrefix, "/") == "":
		return fmt.Errorf("the resource prefix must begin with \"/\" and name a resource: %q", c.ResourcePrefix)
	}
	if c.Store.Records != nil && c.Deleted == nil {
		return errors.New("a watch cache with records needs a function for the objects of deletions")
	}
	if err := runtime.CheckCodec(c.Codec, c.NewFunc()); err != nil {
		return fmt.Errorf("the codec does not fit %s: %w", c.GroupResource, err)
	}
	return nil
}
