package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/component-base/metrics"
	"sigs.k8s.io/randfill"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/datadir"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/embeddedetcd"
)

// openTestBackend returns a backend on an etcd of its own.
func openTestBackend(t *testing.T) *backend {
	t.Helper()
	data, err := datadir.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { data.Close() })
	etcd, err := embeddedetcd.Start(t.Context(), data, defaultQuota)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Stop)
	database, err := openEtcd(t.Context(), EtcdCluster{Servers: []string{etcd.Endpoint}}, true)
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend(database, metrics.NewKubeRegistry(), StoreStorage, WatchHistory{})
	t.Cleanup(b.close)
	return b
}

func (b *backend) etcd() *etcdDatabase { return b.database.(*etcdDatabase) }

// twoReaders are the storage of a resource, and the library's storage, which reads and decodes etcd's
// value for each request.
type twoReaders struct {
	*backend
	ours, library apistorage.Interface
	options       generic.RESTOptions
	newObject     func() runtime.Object
	newList       func() runtime.Object
}

func (b *backend) twoReaders(t *testing.T, options generic.RESTOptions, newObject,
	newList func() runtime.Object) twoReaders {
	t.Helper()
	keyOf := func(o runtime.Object) (string, error) {
		return apistorage.NamespaceKeyFunc("/"+options.ResourcePrefix+"/", o)
	}
	ours, destroy, err := options.Decorator(options.StorageConfig, "/"+options.ResourcePrefix, keyOf,
		newObject, newList, apistorage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	library, err := b.etcd3(options.StorageConfig, "/"+options.ResourcePrefix, newObject, newList)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(library.Close)
	return twoReaders{b, ours, library, options, newObject, newList}
}

func (r twoReaders) key(i int) string {
	return fmt.Sprintf("/%s/ns/o%03d", r.options.ResourcePrefix, i)
}

// put writes values of another API server, in one transaction, which is synced once.
func (r twoReaders) put(t *testing.T, values ...[]byte) {
	t.Helper()
	var writes []clientv3.Op
	for i, value := range values {
		writes = append(writes, clientv3.OpPut(rootPrefix+r.key(i), string(value)))
	}
	if _, err := r.etcd().client.Txn(t.Context()).Then(writes...).Commit(); err != nil {
		t.Fatal(err)
	}
}

// compare fails unless both storages return the same n objects, by get, list and watch.
func (r twoReaders) compare(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for r.ours.ReadinessCheck() != nil { // not within 3 s on a busy machine, after which a request is refused
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the storage is not ready within %v: %v", startTimeout, r.ours.ReadinessCheck())
		}
	}
	all := apistorage.ListOptions{Predicate: apistorage.Everything, Recursive: true}
	list := r.newList()
	if err := r.ours.GetList(ctx, "/"+r.options.ResourcePrefix, all, list); err != nil {
		t.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil || len(items) != n {
		t.Fatalf("%d objects are listed, want %d: %v", len(items), n, err)
	}
	w, err := r.ours.Watch(ctx, "/"+r.options.ResourcePrefix, all)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for i := range n {
		want, got := r.newObject(), r.newObject()
		if err := r.library.Get(ctx, r.key(i), apistorage.GetOptions{}, want); err != nil {
			t.Fatal(err)
		}
		if err := r.ours.Get(ctx, r.key(i), apistorage.GetOptions{}, got); err != nil {
			t.Fatal(err)
		}
		sameObject(t, "get", got, want)
		sameObject(t, "list", items[i], want)
		e := <-w.ResultChan()
		if e.Type != watch.Added {
			t.Fatalf("the watch sends %v", e)
		}
		sameObject(t, "watch", e.Object, want)
	}
}

func sameObject(t *testing.T, how string, got, want runtime.Object) {
	t.Helper()
	if g, w := must(json.Marshal(got))(t), must(json.Marshal(want))(t); string(g) != string(w) {
		t.Errorf("%s of %T differs:\ngot  %s\nwant %s", how, want, g, w)
	}
	message, ok := want.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return
	}
	g := must(got.(interface{ Marshal() ([]byte, error) }).Marshal())(t)
	if w := must(message.Marshal())(t); string(g) != string(w) {
		t.Errorf("%s of %T differs as protobuf", how, want)
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// TestBuiltinObjectsAreExact compares the objects that the storage returns, stored as protobuf or as
// JSON, with those that the library decodes from etcd's bytes.
func TestBuiltinObjectsAreExact(t *testing.T) {
	t.Parallel()
	b := openTestBackend(t)
	registry := must(builtin.NewRegistry())(t)
	tested := 0
	for kind := range registry.Scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal || strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(kind)
		if _, stored := registry.Stored(plural.GroupResource()); !stored {
			continue
		}
		tested++
		t.Run(plural.GroupResource().String(), func(t *testing.T) {
			t.Parallel()
			newObject := func() runtime.Object { return must(registry.Scheme.New(kind))(t) }
			newList := func() runtime.Object {
				return must(registry.Scheme.New(kind.GroupVersion().WithKind(kind.Kind + "List")))(t)
			}
			options := must(builtinOptions{b, registry}.GetRESTOptions(plural.GroupResource(), nil))(t)
			r := b.twoReaders(t, options, newObject, newList)
			kinds, _, err := registry.Scheme.ObjectKinds(newObject())
			if err != nil {
				t.Fatal(err)
			}
			const n = 20
			fuzz := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, fuzzTaints), rand.NewSource(1), registry.Codecs)
			var values [][]byte
			for i := range n {
				o := newObject()
				fuzz.Fill(o)
				m := must(meta.Accessor(o))(t)
				m.SetNamespace("ns")
				m.SetName(fmt.Sprintf("o%03d", i))
				m.SetResourceVersion("")
				value := must(runtime.Encode(options.StorageConfig.Codec, o))(t)
				if i%2 == 1 {
					value = asJSON(t, registry, kinds, o)
				}
				values = append(values, value)
			}
			r.put(t, values...)
			r.compare(t, n)
		})
	}
	if tested < 30 {
		t.Errorf("only %d kinds were found", tested)
	}
}

// fuzzTaints gives each taint of a device a time: its default is the time of decoding.
func fuzzTaints(serializer.CodecFactory) []any {
	return []any{func(taint *resourcev1.DeviceTaint, c randfill.Continue) {
		c.FillNoCustom(taint)
		if taint.TimeAdded == nil {
			taint.TimeAdded = &metav1.Time{Time: time.Unix(c.Int63n(1<<32), 0)}
		}
	}}
}

// asJSON returns an object as a server with the storage media type JSON stores it.
func asJSON(t *testing.T, registry *builtin.Registry, kinds []schema.GroupVersionKind, o runtime.Object) []byte {
	t.Helper()
	for _, kind := range kinds {
		if kind.Version != runtime.APIVersionInternal && registry.Scheme.Recognizes(kind) {
			o.GetObjectKind().SetGroupVersionKind(kind)
			break
		}
	}
	return must(json.Marshal(o))(t)
}

// TestCustomObjectsAreExact is TestBuiltinObjectsAreExact for custom resources.
func TestCustomObjectsAreExact(t *testing.T) {
	t.Parallel()
	b := openTestBackend(t)
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	newObject := func() runtime.Object {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		return o
	}
	newList := func() runtime.Object { return &unstructured.UnstructuredList{} }
	options := b.options(schema.GroupResource{Group: kind.Group, Resource: "widgets"}, "example.com/widgets",
		unstructured.UnstructuredJSONScheme, nil)
	r := b.twoReaders(t, options, newObject, newList)
	contents := []string{
		`{}`, `null`, `[]`, `""`, `[null,{},[]]`, `-0`, `1`, `1.0`, `1e3`, `1.5`, `9223372036854775807`,
		`9223372036854775808`, `-1e-7`, `1e300`,
		`"<a href=\"x\">&\u2028\u0000\ud83d\ude00</a>"`, `{"":{"b":1,"a":[true,false]}}`, `"2026-01-01T00:00:00Z"`,
	}
	var values [][]byte
	for i, content := range contents {
		value := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"o%03d","namespace":"ns",`+
			`"labels":{"l":"%d"},"managedFields":[{"fieldsV1":{"f:spec":{".":{}}}}]},"items":[{"x":1}],"spec":%s}`, i, i,
			content)
		values = append(values, []byte(value))
	}
	r.put(t, values...)
	r.compare(t, len(contents))
}
