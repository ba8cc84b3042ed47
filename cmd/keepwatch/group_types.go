package main

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
)

// groupType is a type of an API group that can be listed and watched.
type groupType struct {
	resource schema.GroupVersionResource
	metav1.APIResource
}

// typesOf returns the types of a group that the server shows, each in the version that the server prefers among those that
// serve it. They are complete unless there is an error: only full answers prove that a type is not there.
func typesOf(ctx context.Context, client rest.Interface, name string) (types []groupType, incomplete error) {
	group, err := groupOf(ctx, client, name)
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, v := range group.Versions {
		list := &metav1.APIResourceList{}
		if err := client.Get().AbsPath("/apis", name, v.Version).Do(ctx).Into(list); err != nil { // also 404: the group has the version
			incomplete = cmp.Or(incomplete, fmt.Errorf("can't read the types of %s: %w", v.GroupVersion, withoutAddress(err)))
			continue
		}
		for _, r := range list.APIResources {
			if have[r.Name] || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch") {
				continue
			}
			have[r.Name] = true
			types = append(types, groupType{schema.GroupVersionResource{Group: name, Version: v.Version, Resource: r.Name}, r})
		}
	}
	return types, incomplete
}

// groupOf returns a group, without versions if the server does not have it. A 404 of the group alone proves nothing: a load
// balancer may have sent it. The list of all groups does.
func groupOf(ctx context.Context, client rest.Interface, name string) (*metav1.APIGroup, error) {
	group := &metav1.APIGroup{}
	if err := client.Get().AbsPath("/apis", name).Do(ctx).Into(group); !apierrors.IsNotFound(err) {
		return group, withoutAddress(err)
	}
	all := &metav1.APIGroupList{}
	if err := client.Get().AbsPath("/apis").Do(ctx).Into(all); err != nil {
		return nil, withoutAddress(err)
	}
	if i := slices.IndexFunc(all.Groups, func(g metav1.APIGroup) bool { return g.Name == name }); i >= 0 {
		return &all.Groups[i], nil
	}
	return &metav1.APIGroup{Name: name}, nil
}
