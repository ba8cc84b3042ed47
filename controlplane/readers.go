package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/version"
	"k8s.io/utils/ptr"

	"github.com/keepwatch/keepwatch/controlplane/builtin"
	"github.com/keepwatch/keepwatch/controlplane/columns"
	"github.com/keepwatch/keepwatch/readpath"
	"github.com/keepwatch/keepwatch/storage"
	"github.com/keepwatch/keepwatch/watchcache"
)

// readers finds what answers the reads of a resource. The built-in ones are added before it is
// used; those of custom resources come and go with their definitions.
type readers struct {
	budget      *readpath.Budget
	builtin     map[schema.GroupVersionResource]*readpath.Reader
	definitions listers.CustomResourceDefinitionLister
	ids         definitionIDs
	asked       *asked

	mu     sync.RWMutex
	custom map[schema.GroupVersionResource]*customReader
}

// customReader answers as long as the definition is the one that the storage was opened with.
type customReader struct {
	*readpath.Reader
	definition definitionID
}

func newReaders(budget int64) *readers {
	return &readers{
		budget:  readpath.NewBudget(budget),
		builtin: map[schema.GroupVersionResource]*readpath.Reader{},
		custom:  map[schema.GroupVersionResource]*customReader{},
		asked:   newAsked(),
	}
}

// follow makes the readers go by definitions. Nothing has run yet.
func (r *readers) follow(definitions informers.CustomResourceDefinitionInformer) error {
	r.definitions = definitions.Lister()
	return r.ids.follow(definitions)
}

// chain puts the read path between the library's checks and its handlers.
func (r *readers) chain(handlers http.Handler, config *genericapiserver.Config) http.Handler {
	reads := readpath.NewHandler(handlers, r.lookup, r.budget, time.Duration(config.MinRequestTimeout)*time.Second)
	return readpath.WithWriteDeadline(genericapiserver.DefaultBuildHandlerChain(reads, config))
}

// addBuiltin adds the built-in resources in the versions that they are stored in.
func (r *readers) addBuiltin(kinds *builtin.Registry, served []builtin.Served) error {
	for _, k := range served {
		stored, ok := k.Store.Storage.Storage.(*storage.Storage)
		if !ok {
			continue
		}
		kind := k.Resource.GroupVersion().WithKind(k.Kind)
		reader, err := readpath.NewReader(readpath.Resource{
			Cache: stored.Cache(), Resource: k.Resource, Kind: kind, Namespaced: k.Namespaced,
			Serializer: kinds.Codecs, Predicate: k.Store.PredicateFunc, Table: columns.Of(k.Resource.GroupResource()),
			Warning: warning(k), ListEncodingUsed: r.asked.of(k.Resource),
			FieldLabel: func(label, value string) (string, string, error) {
				return kinds.Scheme.ConvertFieldLabel(kind, label, value)
			},
		}, r.budget)
		if err != nil {
			return err
		}
		r.builtin[k.Resource] = reader
		r.asked.add(k.Resource, reader)
	}
	return nil
}

// warning is what the library warns of that asks for objects of a deprecated kind.
func warning(k builtin.Served) string {
	object := k.Store.New()
	object.GetObjectKind().SetGroupVersionKind(k.Resource.GroupVersion().WithKind(k.Kind))
	major, minor, _ := deprecation.MajorMinor(version.Get()) // zeros are any version, as there
	if !deprecation.IsDeprecated(object, major, minor) {
		return ""
	}
	return deprecation.WarningMessage(object)
}

// addCustom adds a custom resource in the version of the objects that its storage makes. The
// returned function removes it.
func (r *readers) addCustom(resource schema.GroupResource, example, list runtime.Object, cached *watchcache.Cache, attributes apistorage.AttrFunc) (remove func(), err error) {
	nothing := func() {}
	object, ok := example.(*unstructured.Unstructured)
	if !ok || r.definitions == nil {
		return nothing, nil
	}
	definition, err := r.definitions.Get(resource.String())
	id := idOf(resource.Resource)
	if err != nil || idOf(definition.Status.AcceptedNames.Plural) != id {
		return nothing, nil // it was changed or deleted meanwhile: the library will close the storage
	}
	kind := object.GroupVersionKind()
	if mayBeLists(definition, kind.Version) {
		return nothing, nil
	}
	name := resource.WithVersion(kind.Version)
	reader, err := readpath.NewReader(readpath.Resource{
		Cache: cached, Resource: name, Kind: kind, ListKind: list.GetObjectKind().GroupVersionKind().Kind,
		Namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Serializer: apiserver.Codecs, Dynamic: true, Table: customTable(definition, kind.Version), ListEncodingUsed: r.asked.of(name),
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
	}, r.budget)
	if err != nil {
		return nothing, err
	}
	added := &customReader{reader, id}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.custom[name] = added
	r.asked.add(name, reader)
	return func() {
		r.asked.remove(name, reader)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.custom[name] == added {
			delete(r.custom, name)
		}
	}, nil
}

// mayBeLists reports whether the library may take an object for a list: one with items. What it
// makes of that is left to it.
func mayBeLists(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	v := versionOf(definition, version)
	if v == nil || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return false
	}
	root := v.Schema.OpenAPIV3Schema
	_, items := root.Properties["items"]
	return items || ptr.Deref(root.XPreserveUnknownFields, definition.Spec.PreserveUnknownFields)
}

// customTable is how a custom resource looks in tables; nil leaves them to the library.
func customTable(definition *apiextensionsv1.CustomResourceDefinition, version string) *readpath.Table {
	v := versionOf(definition, version)
	if v == nil {
		return nil
	}
	table, err := columns.Custom(v.AdditionalPrinterColumns)
	if err != nil {
		return nil
	}
	return table
}

// versionOf is a version in a definition, or nil.
func versionOf(definition *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// ready fails until the storages of all built-in resources have caught up with etcd.
func (r *readers) ready() error {
	for name, reader := range r.builtin {
		if err := reader.Cache.ReadinessCheck(); err != nil {
			return fmt.Errorf("%s: %w", name.GroupResource(), err)
		}
	}
	return nil
}

// settle waits until the storages of all built-in resources have decoded what they caught up with.
func (r *readers) settle(ctx context.Context) error {
	for _, reader := range r.builtin {
		select {
		case <-reader.Cache.Warmed():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lookup finds the reader for a request.
func (r *readers) lookup(_ *http.Request, info *request.RequestInfo) *readpath.Reader {
	name := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if known := r.builtin[name]; known != nil {
		return known
	}
	r.mu.RLock()
	known := r.custom[name]
	r.mu.RUnlock()
	if known == nil || !r.current(known, name) {
		return nil
	}
	return known.Reader
}

// current reports whether the definition is the one that the reader's storage was opened with: the
// library then answers from that storage, too. It answers for a version that is deprecated, of which it
// warns.
func (r *readers) current(reader *customReader, name schema.GroupVersionResource) bool {
	definition, err := r.definitions.Get(name.GroupResource().String())
	if err != nil || idOf(definition.Status.AcceptedNames.Plural) != reader.definition {
		return false
	}
	if !apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
		return false
	}
	v := versionOf(definition, name.Version)
	return v != nil && v.Served && !v.Deprecated
}
