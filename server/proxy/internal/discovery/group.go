package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Find returns the version in which the server serves a resource: the one that it prefers for the group, or else the
// first that has it.
func (s Server) Find(ctx context.Context, name schema.GroupResource) (schema.GroupVersionResource, error) {
	versions := []schema.GroupVersion{{Version: "v1"}}
	if name.Group != "" {
		var err error
		if versions, err = s.versions(ctx, name.Group); err != nil {
			return schema.GroupVersionResource{}, err
		}
	}
	for _, version := range versions {
		list, err := s.resources(ctx, version)
		if err != nil {
			return schema.GroupVersionResource{}, err
		}
		if slices.ContainsFunc(list, func(known metav1.APIResource) bool { return known.Name == name.Resource }) {
			return version.WithResource(name.Resource), nil
		}
	}
	if name.Group == "" { // which a user may have left out
		return schema.GroupVersionResource{},
			fmt.Errorf("%w in the core group ('kubectl api-resources -o name' has the names)", notServed(name))
	}
	return schema.GroupVersionResource{}, notServed(name)
}

func notServed(name fmt.Stringer) error { return fmt.Errorf("the server has no resource %s", name) }

// versions returns the versions of a group that the server serves, the preferred one first. There are none if it has no
// such group.
func (s Server) versions(ctx context.Context, group string) (all []schema.GroupVersion, err error) {
	body, _, err := s.getJSON(ctx, "/apis/"+group, nil)
	if refused, ok := errors.AsType[Refusal](err); ok && refused.Code == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var known metav1.APIGroup
	if err := json.Unmarshal(body, &known); err != nil {
		return nil, fmt.Errorf("the description of %s: %w", group, err)
	}
	for _, version := range append([]metav1.GroupVersionForDiscovery{known.PreferredVersion}, known.Versions...) {
		named := schema.GroupVersion{Group: group, Version: version.Version}
		if version.Version != "" && !slices.Contains(all, named) {
			all = append(all, named)
		}
	}
	return all, nil
}
