package readpath

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/source/memory"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/store"
)

// kind describes the objects of a rig.
type kind struct {
	resource   schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	namespaced bool
	dynamic    bool
	codec      runtime.Codec
	serializer runtime.NegotiatedSerializer
	newObject  func() runtime.Object
	newList    func() runtime.Object
}

var (
	// The watch cache stores pods as protobuf, stateful sets in the source's encoding, widgets as JSON.
	pods = builtinKind(corev1.SchemeGroupVersion, "pods", "Pod", true, func() runtime.Object {
		return &corev1.Pod{}
	}, func() runtime.Object { return &corev1.PodList{} })
	nodes = builtinKind(corev1.SchemeGroupVersion, "nodes", "Node", false, func() runtime.Object {
		return &corev1.Node{}
	}, func() runtime.Object { return &corev1.NodeList{} })
	statefulSets = builtinKind(appsv1.SchemeGroupVersion, "statefulsets", "StatefulSet", true,
		func() runtime.Object { return &appsv1.StatefulSet{} }, func() runtime.Object { return &appsv1.StatefulSetList{} })
	widgets = kind{
		resource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, gvk: widgetKind,
		namespaced: true, dynamic: true,
		codec: unstructured.UnstructuredJSONScheme, serializer: serializer.NewCodecFactory(runtime.NewScheme()),
		newObject: newWidget, newList: func() runtime.Object { return &unstructured.UnstructuredList{} },
	}
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

func newWidget() runtime.Object {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(widgetKind)
	return w
}

func builtinKind(gv schema.GroupVersion, resource, name string, namespaced bool, newObject,
	newList func() runtime.Object) kind {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return kind{
		resource: gv.WithResource(resource), gvk: gv.WithKind(name), namespaced: namespaced,
		codec:      bare{scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(), gv, gv)},
		serializer: scheme.Codecs, newObject: newObject, newList: newList,
	}
}

// bare decodes objects that don't name their kind, as an API server's codecs do.
type bare struct{ runtime.Codec }

func (c bare) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, gvk, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return o, gvk, err
}

// rig is a storage of one kind, a reader of its cache, and an HTTP server.
type rig struct {
	t         testing.TB
	kind      kind
	db        *memory.DB
	storage   *storage.Storage
	reader    *Reader
	handler   *Handler
	server    func() *httptest.Server               // starts with its first call; none can run in virtual time
	stop      func()                                // ends the storage
	context   func(context.Context) context.Context // of requests
	delegated atomic.Int64                          // the number of delegated requests
	next      func(*http.Request)                   // is called for each of them; may be nil
}

// options configure a rig.
type options struct {
	db          *memory.DB // of another rig, to start with its objects
	budget      *Budget
	transformer value.Transformer // of reads; writes are not encrypted
	store       store.Options
	minTimeout  time.Duration
}

// registry begins the keys of all objects.
const registry = "/registry"

func newRig(t testing.TB, k kind, o options) *rig {
	t.Helper()
	if o.budget == nil {
		o.budget = NewBudget(1 << 30)
	}
	if o.transformer == nil {
		o.transformer = identity.NewEncryptCheckTransformer()
	}
	if o.db == nil {
		o.db = memory.New()
		t.Cleanup(o.db.Close)
	}
	resource := "/" + k.resource.Resource + "/"
	versioner := apistorage.APIObjectVersioner{}
	writes := must(etcd3.New(o.db.Client(registry+resource), o.db, k.codec, k.newObject, k.newList, registry, resource,
		k.resource.GroupResource(), identity.NewEncryptCheckTransformer(),
		etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(k.codec, versioner), versioner))(t)
	stored := must(storage.New(storage.Config{
		Memory: o.db, Etcd: writes, GroupResource: k.resource.GroupResource(), Prefix: registry,
		ResourcePrefix: resource, Namespaced: k.namespaced,
		Codec: k.codec, Transformer: o.transformer, NewFunc: k.newObject, GetAttrs: attributes, Store: o.store,
	}))(t)
	stop := stored.Start(func(err error) { t.Error(err) })
	r := &rig{t: t, kind: k, db: o.db, storage: stored, context: func(ctx context.Context) context.Context {
		return ctx
	}}
	r.stop = sync.OnceFunc(func() { stop(); writes.Close() })
	t.Cleanup(r.stop)
	await.True(t, "the storage is ready", func() bool { return stored.ReadinessCheck() == nil })
	r.reader = must(NewReader(Resource{
		Cache: stored.Cache(), Resource: k.resource, Kind: k.gvk, Namespaced: k.namespaced, Serializer: k.serializer,
		Dynamic: k.dynamic, Predicate: predicate, Table: &testTable,
	}, o.budget))(t)
	next := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.delegated.Add(1)
		if r.next != nil {
			r.next(q)
		}
		w.WriteHeader(http.StatusTeapot)
	})
	r.handler = NewHandler(next, r.lookup, o.budget, o.minTimeout)
	r.server = sync.OnceValue(func() *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			r.handler.ServeHTTP(w, r.withInfo(q))
		}))
		t.Cleanup(server.Close)
		return server
	})
	return r
}

func attributes(o runtime.Object) (labels.Set, fields.Set, error) {
	m, ok := o.(metav1.Object)
	if !ok {
		return nil, nil, fmt.Errorf("%T has no metadata", o)
	}
	return m.GetLabels(), fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}, nil
}

func predicate(label labels.Selector, field fields.Selector) apistorage.SelectionPredicate {
	return apistorage.SelectionPredicate{Label: label, Field: field, GetAttrs: attributes}
}

func (r *rig) lookup(_ *http.Request, info *request.RequestInfo) *Reader {
	if (schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion,
		Resource: info.Resource}) != r.kind.resource {
		return nil
	}
	return r.reader
}

// withInfo returns a request with the context that an API server's handlers add.
func (r *rig) withInfo(q *http.Request) *http.Request {
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api")}
	info := must(factory.NewRequestInfo(q))(r.t)
	return q.WithContext(r.context(request.WithRequestInfo(q.Context(), info)))
}

// path returns the path of the resource in a namespace, or in all if namespace is empty.
func (r *rig) path(namespace string) string {
	p := "/apis/" + r.kind.resource.Group
	if r.kind.resource.Group == "" {
		p = "/api"
	}
	p += "/" + r.kind.resource.Version
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + r.kind.resource.Resource
}

func (r *rig) key(namespace, name string) string {
	key := "/" + r.kind.resource.Resource + "/"
	if namespace != "" {
		key += namespace + "/"
	}
	return key + name
}

// create creates an object after it was changed.
func (r *rig) create(namespace, name string, more ...func(metav1.Object)) metav1.Object {
	r.t.Helper()
	o := r.kind.newObject()
	m := o.(metav1.Object)
	m.SetNamespace(namespace)
	m.SetName(name)
	for _, change := range more {
		change(m)
	}
	out := r.kind.newObject()
	must(0, r.storage.Create(r.t.Context(), r.key(namespace, name), o, out, 0))(r.t)
	return out.(metav1.Object)
}

// update changes an object.
func (r *rig) update(namespace, name string, change func(metav1.Object)) metav1.Object {
	r.t.Helper()
	out := r.kind.newObject()
	must(0, r.storage.GuaranteedUpdate(r.t.Context(), r.key(namespace, name), out, false, nil, func(o runtime.Object,
		_ apistorage.ResponseMeta) (runtime.Object, *uint64, error) {
		change(o.(metav1.Object))
		return o, nil, nil
	}, nil))(r.t)
	return out.(metav1.Object)
}

func (r *rig) delete(namespace, name string) metav1.Object {
	r.t.Helper()
	out := r.kind.newObject()
	any := func(context.Context, runtime.Object) error { return nil }
	must(0, r.storage.Delete(r.t.Context(), r.key(namespace, name), out, nil, any, nil, apistorage.DeleteOptions{}))(r.t)
	return out.(metav1.Object)
}

// waitFor waits until the cache has reached a write.
func (r *rig) waitFor(written metav1.Object) {
	r.t.Helper()
	must(0, r.storage.Cache().WaitForRevision(r.t.Context(),
		must(keepwatch.ParseRevision(written.GetResourceVersion()))(r.t)))(r.t)
}

// withLabel and withNote set a label and an annotation.
func withLabel(k, v string) func(metav1.Object) {
	return func(m metav1.Object) { m.SetLabels(map[string]string{k: v}) }
}

func withNote(note string) func(metav1.Object) {
	return func(m metav1.Object) { m.SetAnnotations(map[string]string{"note": note}) }
}

// open sends a GET and returns the response, whose body is closed at the end of the test.
func (r *rig) open(path string, header http.Header) *http.Response {
	r.t.Helper()
	q := must(http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.server().URL+path, nil))(r.t)
	q.Header = header
	client := http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	answer := must(client.Do(q))(r.t)
	r.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// ask returns the response to a GET without a connection, also in virtual time.
func (r *rig) ask(path string, header http.Header) *httptest.ResponseRecorder {
	r.t.Helper()
	q := must(http.NewRequestWithContext(r.t.Context(), http.MethodGet, path, nil))(r.t)
	q.Header = header
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, r.withInfo(q))
	return w
}

// get returns the response to a GET and its body.
func (r *rig) get(path string, header http.Header) (*http.Response, []byte) {
	r.t.Helper()
	answer := r.open(path, header)
	return answer, must(io.ReadAll(answer.Body))(r.t)
}

func accept(media string, more ...string) http.Header {
	h := http.Header{"Accept": {media}, "User-Agent": {"test"}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
