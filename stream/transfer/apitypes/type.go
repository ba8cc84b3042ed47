package apitypes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/startup"
)

// Type is a type of a Kubernetes API, in one of its versions.
type Type struct {
	Resource schema.GroupVersionResource
	// Shown is what discovery says of it, nil if it does not show it.
	Shown *metav1.APIResource
}

// Name returns the name of the type in identities of streams, widgets.example.com for example.
func (t Type) Name() string { return t.Resource.GroupResource().String() }

// Of returns the types of a group that can be listed and watched, each in the version that the server prefers among
// those that serve it. They are complete unless there is an error: only full answers prove that a type is not there.
func Of(ctx context.Context, client rest.Interface, name string) (types []Type, incomplete error) {
	group, err := groupOf(ctx, client, name)
	if err != nil {
		return nil, err
	}
	return typesIn(ctx, client, group)
}

// typesIn returns the types of a group that the server has.
func typesIn(ctx context.Context, client rest.Interface, group *metav1.APIGroup) (types []Type, incomplete error) {
	have := map[string]bool{}
	for _, v := range group.Versions {
		list := &metav1.APIResourceList{}
		path := "/apis/" + v.GroupVersion
		if group.Name == "" {
			path = "/api/" + v.Version
		}
		if err := client.Get().AbsPath(path).Do(ctx).Into(list); err != nil { // also 404: the group has the version
			incomplete = cmp.Or(incomplete, fmt.Errorf("can't read the types of %s: %w", v.GroupVersion,
				startup.WithoutAddress(err)))
			continue
		}
		for _, r := range list.APIResources {
			if have[r.Name] || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") ||
				!slices.Contains(r.Verbs, "watch") {
				continue
			}
			have[r.Name] = true
			types = append(types, Type{schema.GroupVersionResource{Group: group.Name, Version: v.Version, Resource: r.Name}, &r})
		}
	}
	return types, incomplete
}

// allTypes returns the types of all groups, and the groups whose types the server did not show. With an error about all
// groups, unknown is nil.
func allTypes(ctx context.Context, client rest.Interface) (types []Type, unknown map[string]bool, incomplete error) {
	all := &metav1.APIGroupList{}
	if err := client.Get().AbsPath("/apis").Do(ctx).Into(all); err != nil {
		return nil, nil, startup.WithoutAddress(err)
	}
	core := metav1.APIGroup{Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: "v1", Version: "v1"}}}
	unknown = map[string]bool{}
	for _, group := range append([]metav1.APIGroup{core}, all.Groups...) {
		found, err := typesIn(ctx, client, &group)
		if err != nil {
			incomplete, unknown[group.Name] = cmp.Or(incomplete, err), true
		}
		types = append(types, found...)
	}
	return types, unknown, incomplete
}

// groupOf returns a group, without versions if the server does not have it. A 404 of the group alone proves nothing: a
// load balancer may have sent it. The list of all groups does.
func groupOf(ctx context.Context, client rest.Interface, name string) (*metav1.APIGroup, error) {
	group := &metav1.APIGroup{}
	if err := client.Get().AbsPath("/apis", name).Do(ctx).Into(group); !apierrors.IsNotFound(err) {
		return group, startup.WithoutAddress(err)
	}
	all := &metav1.APIGroupList{}
	if err := client.Get().AbsPath("/apis").Do(ctx).Into(all); err != nil {
		return nil, startup.WithoutAddress(err)
	}
	if i := slices.IndexFunc(all.Groups, func(g metav1.APIGroup) bool { return g.Name == name }); i >= 0 {
		return &all.Groups[i], nil
	}
	return &metav1.APIGroup{Name: name}, nil
}
