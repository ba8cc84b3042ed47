package readpath

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// Only the API machinery's serializer of compact JSON is replaced. Objects that can't be encoded fail
// with its errors.
func TestPlanSerializers(t *testing.T) {
	plain, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	yaml, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	for name, s := range map[string]runtime.Serializer{"pretty": plain.PrettySerializer, "YAML": yaml.Serializer,
		"another": bareSerializer{plain.Serializer}} {
		if _, is := jsonSerializerOf(s).(planSerializer); is {
			t.Errorf("%s is replaced", name)
		}
	}
	own, is := jsonSerializerOf(plain.Serializer).(planSerializer)
	if !is {
		t.Fatalf("%T is not replaced", plain.Serializer)
	}
	for _, fields := range []string{`{"f:spec":{}}`, ` {"<": 1}`, `{`} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "<&>\xff",
			ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(fields)}}}}
		var got, want bytes.Buffer
		failed, wrong := own.Encode(pod, &got), plain.Serializer.Encode(pod, &want)
		if (failed == nil) != (wrong == nil) || wrong != nil && failed.Error() != wrong.Error() {
			t.Errorf("%s: %v, want %v", fields, failed, wrong)
		}
		if !bytes.Equal(bytes.TrimSuffix(got.Bytes(), newline), bytes.TrimSuffix(want.Bytes(), newline)) {
			t.Errorf("%s: %s, want %s", fields, got.Bytes(), want.Bytes())
		}
	}
}

type bareSerializer struct{ runtime.Serializer }
