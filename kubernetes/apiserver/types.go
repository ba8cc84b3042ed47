package apiserver

import (
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// types are the Go types of a group's kinds, and how they are encoded.
type types struct {
	scheme *runtime.Scheme
	codecs runtime.NegotiatedSerializer
}

// typesOf returns the types of a group. Each server of the chain has its own. The codecs are those that its routes negotiate
// with: CBOR is among them if its feature gate is on.
func typesOf(group string) types {
	scheme, codecs := schemeOf(group)
	return types{scheme, genericapiserver.NewDefaultAPIGroupInfo(group, scheme, metav1.ParameterCodec, codecs).NegotiatedSerializer}
}

func schemeOf(group string) (*runtime.Scheme, serializer.CodecFactory) {
	switch group {
	case apiextensions.GroupName:
		return extensionsserver.Scheme, extensionsserver.Codecs
	case apiregistration.GroupName:
		return aggregatorscheme.Scheme, aggregatorscheme.Codecs
	}
	return legacyscheme.Scheme, legacyscheme.Codecs
}
