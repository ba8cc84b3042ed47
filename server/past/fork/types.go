package fork

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/controlplane/builtin"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// KnownType returns the type of a built-in kind, nil for any other. It is [history.Options].Known of a history whose
// database may not have the types.
func KnownType(resource string) *sink.Type {
	of := schema.ParseGroupResource(resource)
	if of == (schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}) {
		return &sink.Type{
			Version: "v1", Kind: "CustomResourceDefinition", Singular: "customresourcedefinition", ShortNames: []string{"crd",
				"crds"},
			Categories: []string{"api-extensions"},
		}
	}
	d, ok := builtin.Describe(of)
	if !ok {
		return nil
	}
	return &sink.Type{
		Version: d.Kind.Version, Kind: d.Kind.Kind, Singular: d.Singular, ShortNames: d.ShortNames, Categories: d.Categories,
		Namespaced: d.Namespaced,
	}
}
