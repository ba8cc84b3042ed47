package watchcache_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch"
)

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

// An object that was decoded for a reader of JSON becomes a message after the start.
func TestMessagesAreMadeInTheBackground(t *testing.T) {
	t.Parallel()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	c := config()
	c.Codec = bare{scheme.Codecs.CodecForVersions(info.Serializer, scheme.Codecs.UniversalDeserializer(),
		corev1.SchemeGroupVersion, corev1.SchemeGroupVersion)}
	c.NewFunc = func() runtime.Object { return &corev1.Pod{} }
	r := cacheOf(t, c)
	r.WarmAfter(time.Hour)
	value, err := runtime.Encode(c.Codec, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	r.source.write("a", value)
	r.start()
	r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
	o, _ := r.Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "a"})
	cached, decoded, err := r.Decode(o)
	if err != nil || decoded == nil || cached.Protobuf() {
		t.Fatalf("cached is %q, decoded is %v, %v", cached.Bytes(), decoded, err)
	}
	if !r.DecodeAll(t.Context()) || !cached.Protobuf() || len(cached.Bytes()) == 0 {
		t.Error("it is no message after the start")
	}
}
