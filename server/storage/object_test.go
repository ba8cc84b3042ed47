package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

// run opens a storage and starts it.
func run(t testing.TB, client *kubernetes.Client, of stored, history store.Options) *storage.Storage {
	t.Helper()
	s := open(t, client, of, history)
	t.Cleanup(s.Start(func(err error) { t.Error(err) }))
	await.True(t, "the storage is ready", func() bool { return s.ReadinessCheck() == nil })
	return s
}

func put(t testing.TB, client *kubernetes.Client, name string, value []byte) {
	t.Helper()
	if _, err := client.KV.Put(t.Context(), "/registry/pods/ns/"+name, string(value)); err != nil {
		t.Fatal(err)
	}
}

// cachedObject returns the cache's object, once the cache has reached etcd's newest revision.
func cachedObject(t testing.TB, s *storage.Storage, name string) *watchcache.Object {
	t.Helper()
	must(s.Cache().WaitForNewest(t.Context()))(t)
	o, ok := s.Cache().Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: name})
	if !ok {
		t.Fatalf("%s is not in the store", name)
	}
	return must(s.Cache().Read(o))(t)
}

// A built-in object is cached as the protobuf message that is served.
func TestBuiltinObjectsAreCachedAsProtobuf(t *testing.T) {
	t.Parallel()
	client := runEtcd(t)
	s := run(t, client, corePods{}, store.Options{})
	pod := fleet.Pod(1)
	put(t, client, "a", must(runtime.Encode(corePods{}.codec(), pod))(t))
	o := cachedObject(t, s, "a")
	pod.ResourceVersion = fmt.Sprint(o.Revision())
	if want := must(pod.Marshal())(t); !o.Protobuf() || string(o.Bytes()) != string(want) {
		t.Errorf("cached: %q, want %q", o.Bytes(), want)
	}
	first, second := must(o.Decoded())(t).(*corev1.Pod), must(o.Decoded())(t).(*corev1.Pod)
	if first == second || first.Name != "web-00001" || first.ResourceVersion != pod.ResourceVersion {
		t.Errorf("decoded: %v and %v", first, second)
	}
	if o.Labels().Get("app") != "web-1" || o.Fields().Get("metadata.name") != "web-00001" ||
		o.Labels().Has("metadata.name") {
		t.Errorf("attributes: %v, %v", o.Labels(), o.Fields())
	}
	// JSON can represent more than protobuf: it is decoded each time.
	put(t, client, "b",
		[]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"ns"},"spec":{"containers":[]}}`))
	o = cachedObject(t, s, "b")
	if o.Bytes() != nil || o.Protobuf() {
		t.Errorf("cached: %q", o.Bytes())
	}
	if got := must(o.Decoded())(t).(*corev1.Pod); got.Spec.Containers == nil ||
		got.ResourceVersion != fmt.Sprint(o.Revision()) {
		t.Errorf("decoded: %v", got)
	}
}

// An object that a list in JSON has decoded at the start becomes a message when a reader needs one.
func TestMessagesAreMadeLater(t *testing.T) {
	t.Parallel()
	client := runEtcd(t)
	pod := fleet.Pod(1)
	put(t, client, "a", must(runtime.Encode(corePods{}.codec(), pod))(t))
	cold := open(t, client, corePods{}, store.Options{})
	cold.WarmAfter(time.Hour)
	t.Cleanup(cold.Start(func(err error) { t.Error(err) }))
	await.True(t, "the storage is ready", func() bool { return cold.ReadinessCheck() == nil })
	o, _ := cold.Cache().Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "a"})
	known, decoded, err := cold.Cache().Decode(o)
	if err != nil || known.Bytes() != nil || known.Protobuf() {
		t.Fatalf("cached: %q, %v", known.Bytes(), err)
	}
	pod.ResourceVersion = fmt.Sprint(known.Revision())
	if !equality.Semantic.DeepEqual(decoded, runtime.Object(pod)) {
		t.Errorf("decoded: %v", decoded)
	}
	if known.Labels().Get("app") != "web-1" || known.Fields().Get("metadata.name") != "web-00001" {
		t.Errorf("attributes: %v, %v", known.Labels(), known.Fields())
	}
	if _, again, err := cold.Cache().Decode(o); again != nil || err != nil {
		t.Errorf("decoded again: %v, %v", again, err)
	}
	whole, decoded, err := cold.Cache().ReadDecoded(o)
	if want := must(pod.Marshal())(t); err != nil || !whole.Protobuf() || string(whole.Bytes()) != string(want) {
		t.Errorf("cached: %q, want %q: %v", whole.Bytes(), want, err)
	}
	if !equality.Semantic.DeepEqual(decoded, runtime.Object(pod)) {
		t.Errorf("decoded: %v", decoded)
	}
}

// Metadata is read of objects in each encoding: before they are decoded, and after.
func TestMetadata(t *testing.T) {
	t.Parallel()
	client := runEtcd(t)
	pod := fleet.Pod(1)
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "1"}}
	pod.Finalizers = []string{"example.com/hold"}
	for name, value := range map[string][]byte{
		"protobuf":   must(runtime.Encode(corePods{}.codec(), pod))(t),
		"JSON":       must(json.Marshal(pod))(t),
		"damaged":    []byte("k8s\x00damaged"),
		"incomplete": []byte("k8s\x00"),
	} {
		put(t, client, name, value)
	}
	s := open(t, client, corePods{}, store.Options{})
	s.WarmAfter(time.Hour)
	t.Cleanup(s.Start(func(err error) { t.Error(err) }))
	await.True(t, "the storage is ready", func() bool { return s.ReadinessCheck() == nil })
	for o := range s.Cache().Snapshot().All() {
		pod.ResourceVersion = o.Revision().String()
		for _, decoded := range []bool{false, true} {
			if decoded {
				_, _ = s.Cache().Read(o)
			}
			got, err := s.Cache().Metadata(o)
			if o.Key().Name == "damaged" || o.Key().Name == "incomplete" {
				if err == nil {
					t.Errorf("the %s object has metadata: %v", o.Key().Name, got)
				}
			} else if err != nil || !equality.Semantic.DeepEqual(got, &pod.ObjectMeta) {
				t.Errorf("%s, decoded: %v: %v, %v", o.Key().Name, decoded, got, err)
			}
		}
	}
}

// A custom resource is cached as the JSON that is served.
func TestCustomObjectsAreCachedAsJSON(t *testing.T) {
	t.Parallel()
	client := runEtcd(t)
	s := run(t, client, widgets{}, store.Options{})
	put(t, client, "a",
		[]byte(`{"spec":{"b":1, "a":"<"},"kind":"Widget","metadata":{"namespace":"ns","name":"a","labels":{"l":"x"}},"apiVersion":"example.com/v1"}`))
	o := cachedObject(t, s, "a")
	want := fmt.Sprintf(
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"l":"x"},"name":"a","namespace":"ns","resourceVersion":"%d"},"spec":{"a":"\u003c","b":1}}`, o.Revision())
	if string(o.Bytes()) != want || o.Protobuf() {
		t.Errorf("cached: %s, want %s", o.Bytes(), want)
	}
	if again := must(json.Marshal(must(o.Decoded())(t)))(t); string(again) != want+"\n" && string(again) != want {
		t.Errorf("decoded is %s, want %s", again, want)
	}
}

// A hub type is internal to the server, and is not served.
func TestInternalTypesAreNotCachedAsServed(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	a := r.create("a")
	o := cachedObject(t, r.Interface.(*storage.Storage), "a")
	if o.Bytes() != nil {
		t.Errorf("it is served as %q", o.Bytes())
	}
	if m := must(meta.Accessor(must(o.Decoded())(t)))(t); m.GetUID() != a.UID ||
		m.GetResourceVersion() != a.ResourceVersion {
		t.Errorf("decoded is %v, want %v", m, a)
	}
}

// An object that was deleted long ago has its metadata only, in whatever encoding it was cached.
func TestOldDeletionsKeepMetadata(t *testing.T) {
	t.Parallel()
	pod := fleet.Pod(1)
	pod.Namespace, pod.Name = "ns", "gone"
	widget := pod.DeepCopy()
	widget.APIVersion, widget.Kind = "example.com/v1", "Widget"
	written := map[stored][]byte{
		corePods{}: must(runtime.Encode(corePods{}.codec(), pod))(t),
		widgets{}:  must(json.Marshal(widget))(t),
	}
	for of, value := range written {
		t.Run(fmt.Sprintf("%T", of), func(t *testing.T) {
			t.Parallel()
			client := runEtcd(t)
			s := run(t, client, of, store.Options{WindowBytes: 1, TombstoneBytes: 1})
			put(t, client, "gone", value)
			begin := cachedObject(t, s, "gone").Revision()
			if _, err := client.KV.Delete(t.Context(), "/registry/pods/ns/gone"); err != nil {
				t.Fatal(err)
			}
			must(s.Cache().WaitForNewest(t.Context()))(t)
			for range 4 { // push it out of the window
				put(t, client, "other", value)
				cachedObject(t, s, "other")
			}
			w := must(s.Watch(t.Context(), "/pods/", from(fmt.Sprint(begin))))(t)
			defer w.Stop()
			e := <-w.ResultChan()
			last := e.Object
			if shared, ok := last.(runtime.CacheableObject); ok {
				last = shared.GetObject()
			}
			m, err := meta.Accessor(last)
			if e.Type != watch.Deleted || err != nil {
				t.Fatalf("the watch received %v, %v", e, err)
			}
			if m.GetUID() != pod.UID || m.GetLabels()["app"] != "web-1" || m.GetResourceVersion() == fmt.Sprint(begin) ||
				m.GetManagedFields() != nil {
				t.Errorf("what remains is %v", m)
			}
			if spec := must(json.Marshal(last))(t); len(spec) > 2000 {
				t.Errorf("what remains is %s", spec)
			}
		})
	}
}

// SnapshotAt returns states of the storage.
func TestStates(t *testing.T) {
	t.Parallel()
	r := newRigWithShortHistory(t)
	s := r.Interface.(*storage.Storage)
	a := r.create("a")
	newest := must(s.Cache().WaitForNewest(t.Context()))(t)
	if newest < must(keepwatch.ParseRevision(a.ResourceVersion))(t) || s.Cache().Revision() < newest {
		t.Errorf("the barrier is at %d, the store at %d, a at %s", newest, s.Cache().Revision(), a.ResourceVersion)
	}
	if then := must(s.Cache().SnapshotAt(t.Context(), newest))(t); then.Revision() != newest || then.Len() != 1 {
		t.Errorf("at %d there is revision %d of %d", newest, then.Revision(), then.Len())
	}
	r.dropHistory()
	if _, err := s.Cache().SnapshotAt(t.Context(), newest); !errors.Is(err, watchcache.ErrNotCached) {
		t.Errorf("behind the window: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Cache().WaitForRevision(ended, newest+1_000_000); !apistorage.IsTooLargeResourceVersion(err) {
		t.Errorf("a future revision: %v", err)
	}
}

// A read of an object that could not be decoded tries again.
func TestReadTriesAgain(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f})
	s := r.Interface.(*storage.Storage)
	f.set(true)
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	if err := r.Create(t.Context(), "/pods/ns/a", pod, nil, 0); err != nil {
		t.Fatal(err)
	}
	must(s.Cache().WaitForNewest(t.Context()))(t)
	o, _ := s.Cache().Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "a"})
	if read, err := s.Cache().Read(o); err == nil {
		t.Errorf("read is %v", read)
	}
	f.set(false)
	if read := must(s.Cache().Read(o))(t); read.Fields().Get("metadata.name") != "a" {
		t.Errorf("read is %v", read)
	}
}

// Bytes never returns etcd's bytes of an object, neither before its first read nor if it can't be
// decrypted.
func TestBytesAreNeverEtcds(t *testing.T) {
	t.Parallel()
	f := &failing{Transformer: identity.NewEncryptCheckTransformer()}
	r := newRig(t, options{transformer: f, notWarmed: true})
	r.create("a")
	r.restart()
	s := r.Interface.(*storage.Storage)
	o, _ := s.Cache().Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "a"})
	known := o.(*watchcache.Object)
	if b := known.Bytes(); b != nil {
		t.Errorf("before it was read it is served as %q", b)
	}
	f.set(true)
	if read, err := s.Cache().Read(o); err == nil {
		t.Fatalf("read is %v", read)
	}
	if b := known.Bytes(); b != nil {
		t.Errorf("undecrypted it is served as %q", b)
	}
}
