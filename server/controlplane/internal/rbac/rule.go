package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether a rule allows a request.
func allows(rule *rbacv1.PolicyRule, request authorizer.Attributes) bool {
	if !hasOrAll(rule.Verbs, request.GetVerb()) {
		return false
	}
	if !request.IsResourceRequest() {
		return allowsPath(rule.NonResourceURLs, request.GetPath())
	}
	return hasOrAll(rule.APIGroups, request.GetAPIGroup()) &&
		allowsResource(rule.Resources, request.GetResource(), request.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, request.GetName()))
}

// hasOrAll reports whether values have a value, or *.
func hasOrAll(values []string, value string) bool {
	return slices.Contains(values, "*") || slices.Contains(values, value)
}

// allowsResource reports whether resources have *, the requested one, or */ and its subresource. A resource does not
// include its subresources.
func allowsResource(resources []string, resource, subresource string) bool {
	if subresource == "" {
		return hasOrAll(resources, resource)
	}
	return hasOrAll(resources, resource+"/"+subresource) || slices.Contains(resources, "*/"+subresource)
}

// allowsPath reports whether paths have a path, or its beginning and *.
func allowsPath(paths []string, path string) bool {
	return slices.ContainsFunc(paths, func(allowed string) bool {
		return allowed == path || strings.HasSuffix(allowed, "*") && strings.HasPrefix(path, strings.TrimRight(allowed, "*"))
	})
}
