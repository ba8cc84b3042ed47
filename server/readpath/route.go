package readpath

import (
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// hasRoute reports whether the API server has a route for a request's path, and the route means the
// same as info. RequestInfo accepts more paths than there are routes: it skips slashes in front of
// "/api", stops at empty segments, and accepts cluster-scoped resources below a namespace. An authorizer
// decides by RequestInfo; so a path that only RequestInfo accepts must not be answered.
func (r *Resource) hasRoute(info *request.RequestInfo) bool {
	return strings.TrimRight(info.Path, "/") == r.path(info) // routes ignore slashes at the end
}

// path returns the path of the route that info describes.
func (r *Resource) path(info *request.RequestInfo) string {
	path := "/apis/" + r.Resource.Group
	if r.Resource.Group == "" {
		path = "/api"
	}
	path += "/" + r.Resource.Version
	if namespace := r.namespace(info); namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + r.Resource.Resource
	if info.Verb == "get" {
		path += "/" + info.Name
	}
	return path
}

// namespace returns the namespace of the requested objects. In RequestInfo, a Namespace object is in
// itself.
func (r *Resource) namespace(info *request.RequestInfo) string {
	if !r.Namespaced {
		return ""
	}
	return info.Namespace
}
