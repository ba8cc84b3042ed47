package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// TestTypesOf: the kinds of each server of the chain have types, internal and served ones.
func TestTypesOf(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{
		{Group: "", Version: "v1", Kind: "Pod"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"},
	} {
		internal, err := typesOf(kind.Group).scheme.New(kind.GroupKind().WithVersion("__internal"))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := typesOf(kind.Group).scheme.UnsafeConvertToVersion(internal, kind.GroupVersion()); err != nil {
			t.Error(err)
		}
	}
}

// A client that accepts CBOR and JSON, as client-go with its gate ClientsAllowCBOR, is answered as the routes of its
// server would.
func TestCodecsHaveCBOR(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CBORServingAndStorage,
			enabled)
		for _, group := range []string{"", "apiextensions.k8s.io", "apiregistration.k8s.io"} {
			if _, found := runtime.SerializerInfoForMediaType(typesOf(group).negotiated(group).SupportedMediaTypes(),
				runtime.ContentTypeCBOR); found != enabled {
				t.Errorf("group %q has CBOR: %v, want %v", group, found, enabled)
			}
		}
	}
}
