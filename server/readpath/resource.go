package readpath

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/version"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Resource describes one resource in one version. All fields are required unless they say otherwise,
// and must not change after NewReader.
type Resource struct {
	// Cache has the objects in this version, or in one that Convert converts from.
	Cache *watchcache.Cache
	// Resource and Kind are the API's names.
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
	// ListKind is the kind of lists. If it is empty, that is Kind followed by "List".
	ListKind string
	// Namespaced is false for cluster-scoped resources.
	Namespaced bool
	// Serializer is the one with which the API server negotiates encodings.
	Serializer runtime.NegotiatedSerializer
	// Dynamic is true for custom resources: they have no protobuf, and each object names its kind,
	// in lists, too.
	Dynamic bool
	// Table describes the objects in Tables. If it is nil, requests for Tables are delegated.
	Table *Table
	// Predicate returns the API server's predicate for selectors.
	Predicate func(labels.Selector, fields.Selector) apistorage.SelectionPredicate
	// ListEncodingUsed is called once for each encoding in which clients repeat a large list. It may be nil.
	ListEncodingUsed func(ListEncoding)
	// Warning is sent with each response, unless it is empty: that the resource is deprecated.
	Warning string
	// RemovedRelease is the release of Kubernetes that does not have the deprecated resource any more, if that is known.
	RemovedRelease string
	// Convert returns the value that is served for a cached object, without apiVersion and kind. It may
	// change the object. Requests for objects that it fails for are delegated. If it is nil, the cache's
	// objects are served as they are. For the version that the cache stores (watchcache.Cache.Served), it is
	// what the cache converts to.
	Convert func(runtime.Object) (runtime.Object, error)
	// FieldLabel checks and converts one term of a field selector. If it is nil, metadata.name and
	// metadata.namespace are allowed, and requests with others are delegated.
	FieldLabel func(label, value string) (string, string, error)
}

// Deprecation returns what an API server says in answers with a kind, of which o is an object: a warning, and the
// release that does not have the kind any more. They are empty if it is not deprecated.
func Deprecation(o runtime.Object, kind schema.GroupVersionKind) (warning, removedRelease string) {
	o.GetObjectKind().SetGroupVersionKind(kind)
	major, minor, _ := deprecation.MajorMinor(version.Get()) // zeros mean any version, as in k8s.io/apiserver
	if !deprecation.IsDeprecated(o, major, minor) {
		return "", ""
	}
	return deprecation.WarningMessage(o), deprecation.RemovedRelease(o)
}

func (r *Resource) listKind() string {
	if r.ListKind != "" {
		return r.ListKind
	}
	return r.Kind.Kind + "List"
}

// key returns the cache's key of an object, of a namespace's objects if name is empty, or of all if both
// are. It fails if there can be no such object.
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
