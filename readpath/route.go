package readpath

import (
	"strings"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// routed reports whether the API server has a route for a request's path, and means by it
// what info says. RequestInfo reads more into paths than there are routes: it skips slashes
// in front of "/api", stops at empty segments, and takes resources without a namespace out
// of one. An authorizer decides by RequestInfo; so a path that only RequestInfo understands
// must not be answered.
func (r *Resource) routed(info *request.RequestInfo) bool {
	return strings.TrimRight(info.Path, "/") == r.path(info) // routes ignore slashes at the end
}

// path returns the path of the route for what info says.
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

// namespace returns the namespace that a request is for. RequestInfo says of a namespace
// that it is in itself.
func (r *Resource) namespace(info *request.RequestInfo) string {
	if !r.Namespaced {
		return ""
	}
	return info.Namespace
}
