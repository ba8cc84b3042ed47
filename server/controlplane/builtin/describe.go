package builtin

import "k8s.io/apimachinery/pkg/runtime/schema"

// Description is what discovery says of a built-in resource.
type Description struct {
	Kind       schema.GroupVersionKind
	Singular   string
	ShortNames []string
	Categories []string
	Namespaced bool
}

// Describe returns the description of a resource in the version that is stored, or false if it is not built in.
func Describe(resource schema.GroupResource) (Description, bool) {
	for _, k := range table {
		if k.groupResource() != resource {
			continue
		}
		d := Description{Kind: k.gv.WithKind(k.kindName()), Singular: k.singular().Resource, ShortNames: k.short,
			Namespaced: k.namespaced}
		if k.category != "" {
			d.Categories = []string{k.category}
		}
		return d, true
	}
	return Description{}, false
}
