package customreaders

import (
	"fmt"
	"strings"
	"sync"

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
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/customcolumns"
	"github.com/keepwatch/keepwatch/server/readpath"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Readers has a reader for each open storage of a custom resource. It is safe for concurrent use, after
// Follow.
type Readers struct {
	budget      *readpath.Budget
	encodings   Encodings
	definitions listers.CustomResourceDefinitionLister
	ids         definitionIDs

	mu    sync.RWMutex
	added map[schema.GroupVersionResource]*reader
}

// Encodings follows the readers, to encode lists before a client requests them.
type Encodings interface {
	// Recorder returns the resource's readpath.Resource.ListEncodingUsed.
	Recorder(schema.GroupVersionResource) func(readpath.ListEncoding)
	AddReader(schema.GroupVersionResource, *readpath.Reader)
	RemoveReader(schema.GroupVersionResource, *readpath.Reader)
}

// reader is used while the resource's definition is the one for which its storage was opened.
type reader struct {
	*readpath.Reader
	definition definitionID
}

// New returns readers whose encodings count against a budget. encodings may be nil.
func New(budget *readpath.Budget, encodings Encodings) *Readers {
	return &Readers{budget: budget, encodings: encodings, added: map[schema.GroupVersionResource]*reader{}}
}

// Follow sets apiextensions-apiserver's informer of the definitions, which has not started. An informer has one
// transform, which the readers need: the transforms are applied after theirs.
func (r *Readers) Follow(definitions informers.CustomResourceDefinitionInformer,
	transforms ...cache.TransformFunc) error {
	r.definitions = definitions.Lister()
	return r.ids.follow(definitions, transforms)
}

// Decorator returns a decorator that opens a storage of a custom resource in one version by open, and
// adds a reader of it. The returned storage's destroy function removes the reader. Before Follow, opening fails.
func (r *Readers) Decorator(open generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, keyOf func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes apistorage.AttrFunc, triggers apistorage.IndexerFuncs,
		indexers *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
		opened, destroy, err := open(config, prefix, keyOf, newObject, newList, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		ours, ok := opened.(*storage.Storage)
		if !ok {
			return opened, destroy, nil
		}
		remove, err := r.add(config.GroupResource, newObject(), newList(), ours.Cache(), attributes)
		if err != nil {
			destroy()
			return nil, nil, err
		}
		return opened, sync.OnceFunc(func() {
			remove()
			destroy()
		}), nil
	}
}

// add adds a reader of a custom resource, in the version of the objects that its storage decodes. The
// returned function removes the reader.
func (r *Readers) add(resource schema.GroupResource, example, list runtime.Object, cached *watchcache.Cache,
	attributes apistorage.AttrFunc) (remove func(), err error) {
	noReader := func() {}
	object, ok := example.(*unstructured.Unstructured)
	if !ok {
		return noReader, nil
	}
	if r.definitions == nil {
		return noReader, fmt.Errorf("the storage of %s was opened before Follow", resource)
	}
	definition, err := r.definitions.Get(resource.String())
	id := idOf(resource.Resource)
	if err != nil || idOf(definition.Status.AcceptedNames.Plural) != id {
		return noReader, nil // it was changed or deleted meanwhile: apiextensions-apiserver will close the storage
	}
	kind := object.GroupVersionKind()
	if customcolumns.MayBeLists(definition, kind.Version) { // apiextensions-apiserver answers itself
		return noReader, nil
	}
	name := resource.WithVersion(kind.Version)
	namespaced := definition.Spec.Scope == apiextensionsv1.NamespaceScoped
	described := readpath.Resource{
		Cache: cached, Resource: name, Kind: kind, ListKind: list.GetObjectKind().GroupVersionKind().Kind,
		Namespaced: namespaced, FieldLabel: fieldLabel(definition, kind.Version, namespaced),
		Serializer: codecs(), Dynamic: true, Table: tableOf(definition, kind.Version),
		Predicate: func(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
			return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
		},
	}
	if r.encodings != nil {
		described.ListEncodingUsed = r.encodings.Recorder(name)
	}
	made, err := readpath.NewReader(described, r.budget)
	if err != nil {
		return noReader, err
	}
	added := &reader{made, id}
	r.set(name, added)
	return func() { r.remove(name, added) }, nil
}

// fieldLabel returns the check of field selectors of a version.
func fieldLabel(definition *apiextensionsv1.CustomResourceDefinition, version string,
	namespaced bool) func(label, value string) (string, string, error) {
	selectable := sets.New("metadata.name")
	if namespaced {
		selectable.Insert("metadata.namespace")
	}
	if v := customcolumns.VersionOf(definition, version); v != nil {
		for _, field := range v.SelectableFields {
			selectable.Insert(strings.TrimPrefix(field.JSONPath, "."))
		}
	}
	return func(label, value string) (string, string, error) {
		if !selectable.Has(label) {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	}
}

// codecs are those that routes of custom resources negotiate with: CBOR is among them if its feature gate is on.
func codecs() runtime.NegotiatedSerializer {
	if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		return serializer.NewCodecFactory(apiserver.Scheme, serializer.WithSerializer(cbor.NewSerializerInfo))
	}
	return apiserver.Codecs
}

func (r *Readers) set(name schema.GroupVersionResource, added *reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added[name] = added
	if r.encodings != nil {
		r.encodings.AddReader(name, added.Reader)
	}
}

// remove removes a reader, unless another one has replaced it.
func (r *Readers) remove(name schema.GroupVersionResource, added *reader) {
	if r.encodings != nil {
		r.encodings.RemoveReader(name, added.Reader)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.added[name] == added {
		delete(r.added, name)
	}
}

// Lookup returns the reader of a resource; nil if apiextensions-apiserver has to answer.
func (r *Readers) Lookup(name schema.GroupVersionResource) *readpath.Reader {
	r.mu.RLock()
	found := r.added[name]
	r.mu.RUnlock()
	if found == nil || !r.isCurrent(found, name) {
		return nil
	}
	return found.Reader
}

// isCurrent reports whether the definition is the one for which the reader's storage was opened:
// apiextensions-apiserver then answers from the same storage. It is false for a deprecated version:
// apiextensions-apiserver answers with a warning.
func (r *Readers) isCurrent(found *reader, name schema.GroupVersionResource) bool {
	definition, err := r.definitions.Get(name.GroupResource().String())
	if err != nil || idOf(definition.Status.AcceptedNames.Plural) != found.definition {
		return false
	}
	if !apiextensionshelpers.IsCRDConditionTrue(definition, apiextensionsv1.Established) {
		return false
	}
	v := customcolumns.VersionOf(definition, name.Version)
	return v != nil && v.Served && !v.Deprecated
}

// tableOf returns the table of a custom resource; nil if apiextensions-apiserver has to render it.
func tableOf(definition *apiextensionsv1.CustomResourceDefinition, version string) *readpath.Table {
	v := customcolumns.VersionOf(definition, version)
	if v == nil {
		return nil
	}
	t, err := customcolumns.NewTable(v.AdditionalPrinterColumns)
	if err != nil {
		return nil
	}
	return t
}
