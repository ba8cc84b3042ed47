package apiserver

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
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
