package apiserver

import (
	"bytes"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	_ "k8s.io/kubernetes/pkg/controlplane" // all API groups

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// TestCachedVersionIsExact reads random objects of every built-in kind from a watch cache that stores the
// served version, and compares them in each version, as JSON and as protobuf, with those that the codec decodes
// each time. The objects were stored in any version, by programs that know fewer defaults or more fields. The clock
// stands still: a default of DeviceTaintRules is the current time.
func TestCachedVersionIsExact(t *testing.T) { synctest.Test(t, compareAllReads) }

func compareAllReads(t *testing.T) {
	const seed, rounds = 1, 20
	random := fuzzer.FuzzerFor(apitesting.FuzzerFuncs, rand.NewSource(seed), legacyscheme.Codecs)
	cached, kinds := 0, 0
	for _, stored := range storedKinds() {
		kinds++
		for round := range rounds {
			o, err := legacyscheme.Scheme.New(stored)
			if err != nil {
				t.Fatal(err)
			}
			random.Fill(o)
			m, err := meta.Accessor(o)
			if err != nil {
				t.Fatal(stored, err)
			}
			m.SetName("a")
			m.SetNamespace("b")
			if compareReads(t, stored, storedBytes(t, o, stored, round%2 == 1)) {
				cached++
			}
		}
	}
	t.Logf("%d kinds, %d objects are cached in a version", kinds, cached)
	if kinds < 100 || cached < kinds {
		t.Errorf("only %d kinds, and %d objects that are cached in a version", kinds, cached)
	}
}

// storedKinds returns the built-in kinds of objects in every version.
func storedKinds() (kinds []schema.GroupVersionKind) {
	for kind, goType := range legacyscheme.Scheme.AllKnownTypes() {
		o := reflect.New(goType).Interface()
		_, object := o.(metav1.Object)
		_, message := o.(interface{ Marshal() ([]byte, error) })
		internal := schema.GroupVersionKind{Group: kind.Group, Version: runtime.APIVersionInternal, Kind: kind.Kind}
		listed := legacyscheme.Scheme.Recognizes(kind.GroupVersion().WithKind(kind.Kind + "List")) // no subresource
		if object && message && listed && kind.Version != runtime.APIVersionInternal &&
			legacyscheme.Scheme.Recognizes(internal) {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

// storedBytes encodes an object as etcd has it, with or without a field that this version does not know.
func storedBytes(t *testing.T, o runtime.Object, kind schema.GroupVersionKind, unknown bool) []byte {
	t.Helper()
	message, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		t.Fatal(kind, err)
	}
	if unknown {
		message = protowire.AppendBytes(protowire.AppendTag(message, 1000, protowire.BytesType), []byte("of a later version"))
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind},
		Raw: message}
	b, err := envelope.Marshal()
	if err != nil {
		t.Fatal(kind, err)
	}
	return append([]byte("k8s\x00"), b...)
}

// compareReads compares what two caches have of an object. It reports whether one of them stores it in
// the served version.
func compareReads(t *testing.T, stored schema.GroupVersionKind, value []byte) bool {
	t.Helper()
	internal := schema.GroupVersionKind{Group: stored.Group, Version: runtime.APIVersionInternal, Kind: stored.Kind}
	version := legacyscheme.Scheme.PrioritizedVersionsForGroup(stored.Group)[0]
	if !legacyscheme.Scheme.Recognizes(version.WithKind(stored.Kind)) {
		version = stored.GroupVersion()
	}
	newFunc := func() runtime.Object {
		o, err := legacyscheme.Scheme.New(internal)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	codec, versioner, err := serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType: runtime.ContentTypeProtobuf, StorageSerializer: legacyscheme.Codecs,
		StorageVersion: version, MemoryVersion: internal.GroupVersion(),
	})
	if err != nil {
		t.Fatal(err)
	}
	config := &storagebackend.ConfigForResource{Config: storagebackend.Config{Codec: codec, EncodeVersioner: versioner}}
	served := servedVersion(config, newFunc)
	if served == nil {
		t.Fatalf("%v has no served version", stored)
	}
	want, err := read(t, codec, newFunc, nil, value)
	got, gotErr := read(t, codec, newFunc, served, value)
	if (err == nil) != (gotErr == nil) {
		t.Fatalf("%v: %v, want %v", stored, gotErr, err)
	}
	if err != nil {
		return false // the conversion refuses what is random
	}
	if b := got.Bytes(); b != nil && !bytes.Equal(b, inVersion(t, want, served.GroupVersion, marshal)) {
		t.Errorf("%v: the cached protobuf differs", stored)
	}
	if b := got.Bytes(); b != nil && !bytes.Equal(jsonOfMessage(t, served.New(), b),
		inVersion(t, want, served.GroupVersion, encodeJSON)) {
		t.Errorf("%v: the JSON of the cached protobuf differs", stored)
	}
	if !apiequality.Semantic.DeepEqual(decoded(t, got), decoded(t, want)) {
		t.Errorf("%v: got %v, want %v", stored, decoded(t, got), decoded(t, want))
	}
	for _, v := range legacyscheme.Scheme.PrioritizedVersionsForGroup(stored.Group) {
		if !legacyscheme.Scheme.Recognizes(v.WithKind(stored.Kind)) {
			continue
		}
		for encoding, encode := range map[string]func(runtime.Object) ([]byte, error){"protobuf": marshal,
			"JSON": encodeJSON} {
			if g, w := inVersion(t, got, v, encode), inVersion(t, want, v, encode); !bytes.Equal(g, w) {
				t.Errorf("%v in %v as %s:\ngot  %s\nwant %s", stored, v, encoding, g, w)
			}
		}
	}
	return got.Bytes() != nil
}

// read returns the object that a watch cache has of a value.
func read(t *testing.T, codec runtime.Codec, newFunc func() runtime.Object, served *watchcache.Version,
	value []byte) (*watchcache.Object, error) {
	t.Helper()
	cache, err := watchcache.New(watchcache.Config{
		ResourcePrefix: "/objects", Namespaced: true, Codec: codec, NewFunc: newFunc, Served: served,
		GetAttrs: apistorage.DefaultNamespaceScopedAttr,
	}, func(*watchcache.Cache) (watchcache.Source, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	return cache.Read(cache.NewObject(source{}, slices.Clone(value)))
}

// source is an object in etcd.
type source struct{}

func (source) Key() keepwatch.Key           { return keepwatch.Key{Namespace: "b", Name: "a"} }
func (source) UID() keepwatch.UID           { return "1" }
func (source) Revision() keepwatch.Revision { return 7 }

func decoded(t *testing.T, o *watchcache.Object) runtime.Object {
	t.Helper()
	decoded, err := o.Decoded()
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

// inVersion encodes an object of a cache in a version.
func inVersion(t *testing.T, o *watchcache.Object, version schema.GroupVersion,
	encode func(runtime.Object) ([]byte, error)) []byte {
	t.Helper()
	converted, err := convertTo(decoded(t, o), version)
	if err != nil {
		t.Fatal(err)
	}
	b, err := encode(converted)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// jsonOfMessage encodes a message of a version without a conversion, as the read path does.
func jsonOfMessage(t *testing.T, into runtime.Object, message []byte) []byte {
	t.Helper()
	if err := into.(interface{ Unmarshal([]byte) error }).Unmarshal(message); err != nil {
		t.Fatal(err)
	}
	b, err := encodeJSON(into)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func marshal(o runtime.Object) ([]byte, error) {
	return o.(interface{ Marshal() ([]byte, error) }).Marshal()
}

func encodeJSON(o runtime.Object) ([]byte, error) {
	return runtime.Encode(jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, nil, nil,
		jsonserializer.SerializerOptions{}), o)
}
