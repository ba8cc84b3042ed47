package differential

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/fxamacker/cbor/v2"
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
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, metav1.AddMetaToScheme,
		metav1beta1.AddMetaToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(s)
}()

// metadataOf decodes only the metadata of a kind that codecs does not have: objects and lists of all kinds
// have the same fields for it.
func metadataOf(body []byte) (runtime.Object, error) {
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(bytes.TrimPrefix(body, []byte("k8s\x00"))); err != nil {
		return nil, err
	}
	if strings.HasSuffix(unknown.Kind, "List") {
		list := &metav1.PartialObjectMetadataList{}
		return list, list.Unmarshal(unknown.Raw)
	}
	object := &metav1.PartialObjectMetadata{}
	return object, object.Unmarshal(unknown.Raw)
}

// cborMode decodes what Kubernetes encodes, in which texts are byte strings.
var cborMode = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		ByteStringToString: cbor.ByteStringToStringAllowed, FieldNameByteString: cbor.FieldNameByteStringAllowed,
		DefaultByteStringType: reflect.TypeFor[string](), DefaultMapType: reflect.TypeFor[map[string]any](),
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// cborPrefix begins each object in CBOR.
var cborPrefix = []byte{0xd9, 0xd9, 0xf7}

// readable is a body as JSON, if it can be had.
func readable(media string, body []byte) []byte {
	switch {
	case media == protobufType, bytes.HasPrefix(body, []byte("k8s\x00")):
		object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			object, err = metadataOf(body)
		}
		if err != nil {
			return body
		}
		text, err := json.Marshal(object)
		if err != nil {
			return body
		}
		return text
	case media == cborType, media == cborSequence, bytes.HasPrefix(body, cborPrefix):
		var object any
		if cborMode.Unmarshal(body, &object) != nil {
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
