package differential

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// codecs decodes the protobuf of built-in kinds.
var codecs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(s)
}()

// readable is a body as JSON, if it can be had.
func readable(media string, body []byte) []byte {
	switch {
	case media == protobufType, bytes.HasPrefix(body, []byte("k8s\x00")):
		object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return body
		}
		text, err := json.Marshal(object)
		if err != nil {
			return body
		}
		return text
	case media == "application/yaml":
		text, err := yaml.YAMLToJSON(body)
		if err != nil {
			return body
		}
		return text
	}
	return body
}
