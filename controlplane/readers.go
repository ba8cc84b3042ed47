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

// readers has the read path's reader of each resource. Readers of built-in resources are added before
// the server runs; those of custom resources are added and removed with their storages.
type readers struct {
	budget      *readpath.Budget
	builtin     map[schema.GroupVersionResource]*readpath.Reader
	definitions listers.CustomResourceDefinitionLister
	ids         definitionIDs
	encodings   *recentEncodings

	mu     sync.RWMutex
	custom map[schema.GroupVersionResource]*customReader
}

// customReader is a reader of a custom resource. It is used while the resource's definition is the one
// for which the storage was opened.
type customReader struct {
	*readpath.Reader
	definition definitionID
}

func newReaders(budget int64) *readers {
	return &readers{
		budget:    readpath.NewBudget(budget),
		builtin:   map[schema.GroupVersionResource]*readpath.Reader{},
		custom:    map[schema.GroupVersionResource]*customReader{},
		encodings: newRecentEncodings(),
	}
}

// followDefinitions sets the informer of the definitions, which has not started.
func (r *readers) followDefinitions(definitions informers.CustomResourceDefinitionInformer) error {
	r.definitions = definitions.Lister()
	return r.ids.follow(definitions)
}

// chain puts the read path between the filters of k8s.io/apiserver and its handlers.
func (r *readers) chain(handlers http.Handler, config *genericapiserver.Config) http.Handler {
	reads := readpath.NewHandler(handlers, r.lookup, r.budget, time.Duration(config.MinRequestTimeout)*time.Second)
	return readpath.WithWriteDeadline(genericapiserver.DefaultBuildHandlerChain(reads, config))
}

// addBuiltin adds readers of the built-in resources, in their stored versions.
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
			Warning: warning(k), ListEncodingUsed: r.encodings.recorder(k.Resource),
			FieldLabel: func(label, value string) (string, string, error) {
				return kinds.Scheme.ConvertFieldLabel(kind, label, value)
			},
		}, r.budget)
		if err != nil {
			return err
		}
		r.builtin[k.Resource] = reader
		r.encodings.addReader(k.Resource, reader)
	}
	return nil
}

// warning returns the warning of k8s.io/apiserver for requests of a deprecated kind; empty for others.
func warning(k builtin.Served) string {
	object := k.Store.New()
	object.GetObjectKind().SetGroupVersionKind(k.Resource.GroupVersion().WithKind(k.Kind))
	major, minor, _ := deprecation.MajorMinor(version.Get()) // zeros mean any version, as in k8s.io/apiserver
	if !deprecation.IsDeprecated(object, major, minor) {
		return ""
	}
	return deprecation.WarningMessage(object)
}

// addCustom adds a reader of a custom resource, in the version of the objects that its storage
// decodes. The returned function removes the reader.
func (r *readers) addCustom(resource schema.GroupResource, example, list runtime.Object, cached *watchcache.Cache, attributes apistorage.AttrFunc) (remove func(), err error) {
	noReader := func() {}
	object, ok := example.(*unstructured.Unstructured)
	if !ok || r.definitions == nil {
		return noReader, nil
	}
	definition, err := r.definitions.Get(resource.String())
	id := idOf(resource.Resource)
	if err != nil || idOf(definition.Status.AcceptedNames.Plural) != id {
		return noReader, nil // it was changed or deleted meanwhile: apiextensions-apiserver will close the storage
	}
	kind := object.GroupVersionKind()
	if mayBeLists(definition, kind.Version) {
		return noReader, nil
	}
	name := resource.WithVersion(kind.Version)
	reader, err := readpath.NewReader(readpath.Resource{
		Cache: cached, Resource: name, Kind: kind, ListKind: list.GetObjectKind().GroupVersionKind().Kind,
		Namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Serializer: apiserver.Codecs, Dynamic: true, Table: customTable(definition, kind.Version), ListEncodingUsed: r.encodings.recorder(name),
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
	}, r.budget)
	if err != nil {
		return noReader, err
	}
	added := &customReader{reader, id}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.custom[name] = added
	r.encodings.addReader(name, reader)
	return func() {
		r.encodings.removeReader(name, reader)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.custom[name] == added {
			delete(r.custom, name)
		}
	}, nil
}

// mayBeLists reports whether apiextensions-apiserver may treat an object of a version as a list: an
// object with items. It answers the requests of such resources itself, without a reader.
func mayBeLists(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	v := versionOf(definition, version)
	if v == nil || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return false
	}
	root := v.Schema.OpenAPIV3Schema
	_, items := root.Properties["items"]
	return items || ptr.Deref(root.XPreserveUnknownFields, definition.Spec.PreserveUnknownFields)
}

// customTable returns the table of a custom resource; nil if apiextensions-apiserver has to render it.
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

// versionOf returns a version of a definition, or nil.
func versionOf(definition *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// ready returns an error until the caches of all built-in resources are ready.
func (r *readers) ready() error {
	for name, reader := range r.builtin {
		if err := reader.Cache().ReadinessCheck(); err != nil {
			return fmt.Errorf("%s: %w", name.GroupResource(), err)
		}
	}
	return nil
}

// waitWarmed waits until the caches of all built-in resources have decoded the objects that they read
// at the start.
func (r *readers) waitWarmed(ctx context.Context) error {
	for _, reader := range r.builtin {
		select {
		case <-reader.Cache().Warmed():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// lookup returns the reader for a request; nil if the handlers of k8s.io/apiserver have to answer it.
func (r *readers) lookup(_ *http.Request, info *request.RequestInfo) *readpath.Reader {
	name := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	if reader := r.builtin[name]; reader != nil {
		return reader
	}
	r.mu.RLock()
	custom := r.custom[name]
	r.mu.RUnlock()
	if custom == nil || !r.isCurrent(custom, name) {
		return nil
	}
	return custom.Reader
}

// isCurrent reports whether the definition is the one for which the reader's storage was opened:
// apiextensions-apiserver then answers from the same storage. It is false for a deprecated version:
// apiextensions-apiserver answers with a warning.
func (r *readers) isCurrent(reader *customReader, name schema.GroupVersionResource) bool {
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
