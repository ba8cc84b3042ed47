package policies

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Mapper returns the resource of a kind by a request of discovery, so that it knows every custom resource that is
// served now. It has the methods that policies use; the others know nothing.
type Mapper struct {
	meta.RESTMapper
	discovery discovery.DiscoveryInterface
}

// NewMapper returns a mapper. It requests nothing before its first use.
func NewMapper(discovery discovery.DiscoveryInterface) *Mapper {
	return &Mapper{meta.NewDefaultRESTMapper(nil), discovery}
}

// RESTMapping returns the resource of a kind in the first of the versions in which it is served.
func (m *Mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	for _, version := range versions {
		gv := schema.GroupVersion{Group: kind.Group, Version: version}
		for _, resource := range m.resources(gv) {
			if resource.Kind != kind.Kind {
				continue
			}
			mapping := &meta.RESTMapping{Resource: gv.WithResource(resource.Name), GroupVersionKind: gv.WithKind(kind.Kind),
				Scope: meta.RESTScopeRoot}
			if resource.Namespaced {
				mapping.Scope = meta.RESTScopeNamespace
			}
			return mapping, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

// KindsFor returns the kind of a resource in its version.
func (m *Mapper) KindsFor(wanted schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	for _, resource := range m.resources(wanted.GroupVersion()) {
		if resource.Name == wanted.Resource {
			return []schema.GroupVersionKind{wanted.GroupVersion().WithKind(resource.Kind)}, nil
		}
	}
	return nil, &meta.NoResourceMatchError{PartialResource: wanted}
}

// resources returns the resources that are served in a version, without subresources and those of other groups' kinds.
func (m *Mapper) resources(gv schema.GroupVersion) []metav1.APIResource {
	list, err := m.discovery.ServerResourcesForGroupVersion(gv.String())
	if err != nil {
		return nil
	}
	var own []metav1.APIResource
	for _, resource := range list.APIResources {
		if !strings.Contains(resource.Name, "/") && (resource.Group == "" || resource.Group == gv.Group) &&
			(resource.Version == "" || resource.Version == gv.Version) {
			own = append(own, resource)
		}
	}
	return own
}
