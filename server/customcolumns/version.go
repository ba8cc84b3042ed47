package customcolumns

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

// VersionOf returns a version of a definition, or nil.
func VersionOf(definition *apiextensionsv1.CustomResourceDefinition,
	name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range definition.Spec.Versions {
		if v := &definition.Spec.Versions[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// MayBeLists reports whether apiextensions-apiserver may treat an object of a version as a list: an
// object with items. Its Table then has a row for each item.
func MayBeLists(definition *apiextensionsv1.CustomResourceDefinition, version string) bool {
	v := VersionOf(definition, version)
	if v == nil || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
		return false
	}
	root := v.Schema.OpenAPIV3Schema
	_, items := root.Properties["items"]
	return items || ptr.Deref(root.XPreserveUnknownFields, definition.Spec.PreserveUnknownFields)
}
