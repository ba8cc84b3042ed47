package readpath

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/storage"
)

// library is k8s.io/apiserver's own handler of some resources: its director, routes and registry, in
// front of a storage that records calls.
type library struct {
	handler http.Handler
	calls   []call
}

// call is a call of a storage.
type call struct {
	verb    string
	key     string
	options apistorage.ListOptions
	timeout time.Duration // of a watch
}

func (c call) String() string {
	p := c.options.Predicate
	initial := "unset"
	if c.options.SendInitialEvents != nil {
		initial = fmt.Sprint(*c.options.SendInitialEvents)
	}
	return fmt.Sprintf(
		"%s %q revision %q match %q recursive %v initial events %s labels %v fields %v limit %d continue %q bookmarks %v",
		c.verb, c.key, c.options.ResourceVersion, c.options.ResourceVersionMatch, c.options.Recursive, initial, p.Label,
		p.Field, p.Limit, p.Continue, p.AllowWatchBookmarks)
}

// newLibrary returns a library with kinds of the core group, and a subresource "status" of each.
func newLibrary(t testing.TB, kinds ...kind) *library {
	t.Helper()
	l := &library{}
	served := map[string]rest.Storage{}
	for _, k := range kinds {
		store := l.store(t, k)
		served[k.resource.Resource] = reads{store, store, store, store, store, store}
		served[k.resource.Resource+"/status"] = readsOne{store, store}
	}
	types := runtime.NewScheme()
	must(0, corev1.AddToScheme(types))(t)
	metav1.AddToGroupVersion(types, corev1.SchemeGroupVersion)
	server := genericapiserver.NewAPIServerHandler("library", scheme.Codecs, func(h http.Handler) http.Handler {
		return h
	}, http.NotFoundHandler())
	_, _, err := (&endpoints.APIGroupVersion{
		Storage: served, Root: "/api", GroupVersion: corev1.SchemeGroupVersion, MinRequestTimeout: time.Hour,
		Serializer: serializer.NewCodecFactory(types), ParameterCodec: runtime.NewParameterCodec(types), Typer: types,
		Creater: types, Convertor: types, Defaulter: types,
		Namer: meta.NewAccessor(), UnsafeConvertor: runtime.UnsafeObjectConvertor(types),
		TypeConverter:              managedfields.NewDeducedTypeConverter(),
		EquivalentResourceRegistry: runtime.NewEquivalentResourceRegistry(),
	}).InstallREST(server.GoRestfulContainer)
	must(0, err)(t)
	l.handler = server.FullHandlerChain
	return l
}

// reads has the methods of a store that are served. Writes would need strategies.
type reads struct {
	rest.Storage
	rest.Scoper
	rest.SingularNameProvider
	rest.Getter
	rest.Lister
	rest.Watcher
}

type readsOne struct {
	rest.Storage
	rest.Getter
}

func (l *library) store(t testing.TB, k kind) *genericregistry.Store {
	t.Helper()
	name := k.resource.GroupResource()
	rules := scoped{namespaced: k.namespaced}
	store := &genericregistry.Store{
		NewFunc: k.newObject, NewListFunc: k.newList, DefaultQualifiedResource: name, SingularQualifiedResource: name,
		TableConvertor: rest.NewDefaultTableConvertor(name),
		CreateStrategy: rules, DeleteStrategy: rules,
	}
	decorator := func(*storagebackend.ConfigForResource, string, func(runtime.Object) (string, error),
		func() runtime.Object, func() runtime.Object,
		apistorage.AttrFunc, apistorage.IndexerFuncs, *cache.Indexers) (apistorage.Interface, factory.DestroyFunc, error) {
		return recordingStorage{library: l}, func() {}, nil
	}
	must(0, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: generic.RESTOptions{
		StorageConfig: &storagebackend.ConfigForResource{}, Decorator: decorator, ResourcePrefix: "/" + k.resource.Resource,
	}}))(t)
	return store
}

// scoped is a strategy that says only whether objects have a namespace.
type scoped struct {
	rest.RESTCreateStrategy
	namespaced bool
}

func (s scoped) NamespaceScoped() bool { return s.namespaced }

// recordingStorage is a storage without objects that records calls.
type recordingStorage struct {
	apistorage.Interface
	library *library
}

func (n recordingStorage) record(ctx context.Context, verb, key string, options apistorage.ListOptions) {
	c := call{verb: verb, key: key, options: options}
	if end, ok := ctx.Deadline(); ok {
		c.timeout = time.Until(end)
	}
	n.library.calls = append(n.library.calls, c)
}

func (recordingStorage) ReadinessCheck() error { return nil }

func (n recordingStorage) Get(ctx context.Context, key string, options apistorage.GetOptions, _ runtime.Object) error {
	n.record(ctx, "get", key, apistorage.ListOptions{ResourceVersion: options.ResourceVersion,
		Predicate: apistorage.Everything})
	return nil
}

func (n recordingStorage) GetList(ctx context.Context, key string, options apistorage.ListOptions,
	_ runtime.Object) error {
	n.record(ctx, "list", key, options)
	return nil
}

func (n recordingStorage) Watch(ctx context.Context, key string,
	options apistorage.ListOptions) (watch.Interface, error) {
	n.record(ctx, "watch", key, options)
	return watch.NewEmptyWatch(), nil
}

// resourceWithoutObjects returns a kind's resource, to parse requests. Its storage never runs.
func resourceWithoutObjects(t testing.TB, k kind) *Resource {
	t.Helper()
	db := memory.New()
	t.Cleanup(db.Close)
	stored := must(storage.New(storage.Config{
		Memory: db, Etcd: recordingStorage{}, GroupResource: k.resource.GroupResource(), ResourcePrefix: "/" +
			k.resource.Resource,
		Codec: k.codec, NewFunc: k.newObject, GetAttrs: attributes,
	}))(t)
	return &Resource{
		Cache: stored.Cache(), Resource: k.resource, Kind: k.gvk, Namespaced: k.namespaced, Serializer: k.serializer,
		Predicate: predicate, Table: &testTable,
	}
}

func (recordingStorage) Versioner() apistorage.Versioner { return apistorage.APIObjectVersioner{} }

var namespaces = builtinKind(corev1.SchemeGroupVersion, "namespaces", "Namespace", false, func() runtime.Object {
	return &corev1.Namespace{}
}, func() runtime.Object { return &corev1.NamespaceList{} })
