package customreaders

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
)

// A client that accepts CBOR and JSON is answered in CBOR, by apiextensions-apiserver, if its feature gate is on.
func TestCodecsHaveCBOR(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CBORServingAndStorage,
			enabled)
		if _, found := runtime.SerializerInfoForMediaType(codecs().SupportedMediaTypes(),
			runtime.ContentTypeCBOR); found != enabled {
			t.Errorf("CBOR: %v, want %v", found, enabled)
		}
	}
}
