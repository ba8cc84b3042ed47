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
	codecs serializer.CodecFactory
}

// typesOf returns the types of a group. Each server of the chain has its own.
func typesOf(group string) types {
	switch group {
	case apiextensions.GroupName:
		return types{extensionsserver.Scheme, extensionsserver.Codecs}
	case apiregistration.GroupName:
		return types{aggregatorscheme.Scheme, aggregatorscheme.Codecs}
	}
	return types{legacyscheme.Scheme, legacyscheme.Codecs}
}

// negotiated returns the codecs that the routes of a group negotiate with: CBOR is among them if its feature gate is
// on. It makes them, which is too much for each object.
func (t types) negotiated(group string) runtime.NegotiatedSerializer {
	return genericapiserver.NewDefaultAPIGroupInfo(group, t.scheme, metav1.ParameterCodec, t.codecs).NegotiatedSerializer
}
