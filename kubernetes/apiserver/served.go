package apiserver

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// servedResource is a resource in one version that an API server has a route for.
type servedResource struct {
	resource   schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
}

// servedBy returns the resources that a server lists and watches, from its routes.
func servedBy(server *genericapiserver.GenericAPIServer) []servedResource {
	found := map[schema.GroupVersionResource]servedResource{}
	for _, service := range server.Handler.GoRestfulContainer.RegisteredWebServices() {
		for _, route := range service.Routes() {
			if route.Metadata[endpoints.RouteMetaAction] != "list" {
				continue
			}
			gvk, ok := route.Metadata[endpoints.RouteMetaGVK].(metav1.GroupVersionKind)
			if !ok {
				continue
			}
			kind := schema.GroupVersionKind(gvk)
			below, ok := strings.CutPrefix(route.Path, service.RootPath()+"/")
			if !ok {
				continue
			}
			resource, namespaced := strings.CutPrefix(below, "namespaces/{namespace}/")
			if strings.Contains(resource, "/") {
				continue
			}
			gv, ok := versionOf(service.RootPath())
			if !ok {
				continue
			}
			name := gv.WithResource(resource)
			// A namespaced resource also has a route for the objects of all namespaces.
			found[name] = servedResource{name, kind, namespaced || found[name].namespaced}
		}
	}
	return slices.Collect(maps.Values(found))
}

// groupsOf returns the API groups of a server's routes. It answers all requests below their paths.
func groupsOf(server *genericapiserver.GenericAPIServer) []string {
	var groups []string
	for _, service := range server.Handler.GoRestfulContainer.RegisteredWebServices() {
		if below, ok := strings.CutPrefix(service.RootPath(), "/apis/"); ok {
			group, _, _ := strings.Cut(below, "/")
			groups = append(groups, group)
		}
	}
	return groups
}

// versionOf parses a root path: /api/v1 or /apis/apps/v1.
func versionOf(root string) (schema.GroupVersion, bool) {
	if version, ok := strings.CutPrefix(root, "/api/"); ok {
		return schema.GroupVersion{Version: version}, true
	}
	below, ok := strings.CutPrefix(root, "/apis/")
	group, version, two := strings.Cut(below, "/")
	return schema.GroupVersion{Group: group, Version: version}, ok && two
}
