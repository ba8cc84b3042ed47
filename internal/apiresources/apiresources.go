// Package apiresources asks an API server which groups and resources it serves. client-go's discovery client takes a
// context for that from v0.36 on only, and a request without one would continue after its caller has given up.
package apiresources

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Server is an API server. It can be used concurrently.
type Server struct{ client rest.Interface }

// On returns the server that a discovery client asks.
func On(client discovery.DiscoveryInterface) Server { return Server{client.RESTClient()} }

// Versions returns the versions of a group in the server's order, the preferred one first. It returns none of a group
// that the server does not have.
func (s Server) Versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	var all metav1.APIGroupList
	if err := s.client.Get().AbsPath("/apis").Do(ctx).Into(&all); err != nil {
		return nil, err
	}
	var versions []string
	for _, g := range all.Groups {
		if g.Name != group {
			continue
		}
		versions = append(versions, g.PreferredVersion.Version)
		for _, v := range g.Versions {
			if v.Version != g.PreferredVersion.Version {
				versions = append(versions, v.Version)
			}
		}
	}
	return versions, nil
}

// Resources returns the resources and subresources of a version.
func (s Server) Resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	var all metav1.APIResourceList
	if err := s.client.Get().AbsPath(path).Do(ctx).Into(&all); err != nil {
		return nil, err
	}
	return all.APIResources, nil
}
