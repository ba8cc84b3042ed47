package readpath

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/keepwatch/keepwatch/watchcache"
)

// Resource is what requests for one resource in one version are answered from. All
// is required but where it says otherwise; nothing may change once it is in use.
type Resource struct {
	// Cache has the objects, in this version.
	Cache *watchcache.Cache
	// Resource and Kind are the API's names.
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
	// ListKind is the kind of lists; empty is Kind with "List" behind it.
	ListKind string
	// Namespaced is false for cluster-scoped resources.
	Namespaced bool
	// Serializer is what the API server negotiates encodings with.
	Serializer runtime.NegotiatedSerializer
	// Dynamic is true for custom resources: they have no protobuf, and each object
	// names its kind, in lists, too.
	Dynamic bool
	// Table is how objects look in Tables. Nil leaves those to the API server.
	Table *Table
	// Predicate makes the API server's predicate of selectors.
	Predicate func(labels.Selector, fields.Selector) apistorage.SelectionPredicate
	// Asked, if it is not nil, is called once for each encoding that large lists are asked for in.
	Asked func(Encoding)
	// Warning is sent to whoever asks for the resource, if it is not empty, and tells that it is
	// deprecated.
	Warning string
	// FieldLabel checks and translates one term of a field selector. Nil allows
	// metadata.name and metadata.namespace; others are passed on.
	FieldLabel func(label, value string) (string, string, error)
}

func (r *Resource) listKind() string {
	if r.ListKind != "" {
		return r.ListKind
	}
	return r.Kind.Kind + "List"
}

// key returns the cache's key of an object, or if it has no name of those in a
// namespace, or of all. It fails if there can be no such object.
func (r *Resource) key(namespace, name string) (string, bool) {
	key := r.Cache.ResourcePrefix()
	if namespace != "" {
		if !r.Namespaced {
			return "", false
		}
		key += "/" + namespace
	}
	if name == "" {
		return key, true
	}
	if r.Namespaced && namespace == "" || len(content.IsPathSegmentName(name)) > 0 {
		return "", false
	}
	return key + "/" + name, true
}

// fieldLabel checks one term of a field selector.
func (r *Resource) fieldLabel(label, value string) (string, string, error) {
	if r.FieldLabel != nil {
		return r.FieldLabel(label, value)
	}
	if label != "metadata.name" && (label != "metadata.namespace" || !r.Namespaced) {
		return "", "", fmt.Errorf("field label not known: %s", label)
	}
	return label, value, nil
}

// AllowsMediaTypeTransform says what an API server would.
func (r *Resource) AllowsMediaTypeTransform(mediaType, subtype string, target *schema.GroupVersionKind) bool {
	if target == nil {
		return !r.Dynamic || subtype != "vnd.kubernetes.protobuf"
	}
	switch target.Kind {
	case "Table":
		return mediaType == "application" && (subtype == "json" || subtype == "yaml")
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		return true
	}
	return false
}

// AllowsServerVersion says what an API server would.
func (r *Resource) AllowsServerVersion(version string) bool { return version == "v1" }

// AllowsStreamSchema says what an API server would.
func (r *Resource) AllowsStreamSchema(schema string) bool { return schema == "watch" }
