package storage_test

import (
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/utils/clock"

	"github.com/keepwatch/keepwatch/server/storage"
	"github.com/keepwatch/keepwatch/store"
)

// stored describes the stored objects of a resource.
type stored interface {
	codec() runtime.Codec
	newObject() runtime.Object
	newList() runtime.Object
}

// corePods is a built-in kind whose Go type is both internal and served.
type corePods struct{}

var coreScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(corev1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Version: runtime.APIVersionInternal}, &corev1.Pod{}, &corev1.PodList{})
	return scheme
}()

func (corePods) codec() runtime.Codec {
	codecs := serializer.NewCodecFactory(coreScheme)
	return bareCodec{versioning.NewDefaultingCodecForScheme(coreScheme, protobuf.NewSerializer(coreScheme, coreScheme),
		codecs.UniversalDeserializer(),
		schema.GroupVersions{corev1.SchemeGroupVersion}, schema.GroupVersion{Version: runtime.APIVersionInternal})}
}

// bareCodec decodes objects without apiVersion and kind, as those of internal types.
type bareCodec struct{ runtime.Codec }

func (c bareCodec) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, kind, err := c.Codec.Decode(data, defaults, into)
	if o != nil {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return o, kind, err
}

func (corePods) newObject() runtime.Object { return &corev1.Pod{} }
func (corePods) newList() runtime.Object   { return &corev1.PodList{} }

// widgets are custom resources.
type widgets struct{}

func (widgets) codec() runtime.Codec { return unstructured.UnstructuredJSONScheme }
func (widgets) newObject() runtime.Object {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("example.com/v1")
	o.SetKind("Widget")
	return o
}
func (widgets) newList() runtime.Object { return &unstructured.UnstructuredList{} }

// open returns a storage that does not run yet.
func open(t testing.TB, client *kubernetes.Client, of stored, history store.Options) *storage.Storage {
	t.Helper()
	compactor := etcd3.NewCompactor(client.Client, 0, clock.RealClock{}, nil)
	t.Cleanup(compactor.Stop)
	versioner := apistorage.APIObjectVersioner{}
	raw := must(etcd3.New(client, compactor, of.codec(), of.newObject, of.newList, "/registry", "/pods/", pods,
		identity.NewEncryptCheckTransformer(), etcd3.NewDefaultLeaseManagerConfig(), etcd3.NewDefaultDecoder(of.codec(),
			versioner), versioner))(t)
	t.Cleanup(raw.Close)
	return must(storage.New(storage.Config{
		Client: client.Client, Etcd: raw, GroupResource: pods, Prefix: "/registry", ResourcePrefix: "/pods/",
		Namespaced: true,
		Codec:      of.codec(), NewFunc: of.newObject, GetAttrs: apistorage.DefaultNamespaceScopedAttr, Store: history,
	}))(t)
}
