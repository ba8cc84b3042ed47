package personal

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// Reviews decides as the API server does. Its methods are safe for concurrent use.
type Reviews interface {
	// Decide reports whether the server allows something. It fails if the server does not decide, and, unless a watch is
	// open, if it would have to wait for long until the server is asked.
	Decide(ctx context.Context, a authorizer.Attributes, open bool) (bool, error)
	// Confirm is Decide for what the server has denied: it asks again, and does not count an answer of a server that
	// starts.
	Confirm(ctx context.Context, a authorizer.Attributes, open bool) (bool, error)
	// Ready returns why the server's denials do not count, nil if they do: it starts.
	Ready(ctx context.Context) error
	// BeyondRoles reports whether the server may allow something for another reason than a role.
	BeyondRoles() bool
}

var namespacesResource = schema.GroupResource{Resource: "namespaces"}

// Subject is what a view is about: what a user may list or watch.
type Subject struct {
	User     user.Info
	Resource schema.GroupVersionResource
	Verb     string
}

// ofNamespaces reports whether the objects are namespaces themselves.
func (s Subject) ofNamespaces() bool { return s.Resource.GroupResource() == namespacesResource }

// attributes returns what the server is asked about a namespace, or about all for the empty one: whether the user may
// get it, if the objects are namespaces.
func (s Subject) attributes(namespace string) authorizer.Attributes {
	a := authorizer.AttributesRecord{
		User: s.User, Verb: s.Verb, Namespace: namespace, APIGroup: s.Resource.Group, APIVersion: s.Resource.Version,
		Resource: s.Resource.Resource, ResourceRequest: true,
	}
	if s.ofNamespaces() {
		a.Verb, a.Name = "get", namespace
	}
	return a
}

// candidates returns the namespaces that the server is asked about, and those of them in which the user is bound. While
// changes of roles are not seen, they are those where the user was bound, and what is shown, nil if nothing is yet:
// when a server restarts, the views of all users would ask it about all namespaces. What is granted then waits until
// changes are seen.
func (v *Views) candidates(s Subject, existing map[string]keepwatch.UID,
	shown *watchcache.Namespaces) (all []string, bound map[string]bool) {
	roles, seen := v.cluster.Roles()
	if roles == nil || !seen && shown == nil {
		return slices.Sorted(maps.Keys(existing)), nil
	}
	bound = roles.bound(s.User)
	if !seen {
		for namespace := range shown.All() {
			bound[namespace] = true
		}
	}
	if s.ofNamespaces() {
		maps.Copy(bound, roles.named(s.User))
	}
	maps.DeleteFunc(bound, func(namespace string, _ bool) bool {
		_, exists := existing[namespace]
		return !exists
	})
	if v.reviews.BeyondRoles() {
		return slices.Sorted(maps.Keys(existing)), bound
	}
	return slices.Sorted(maps.Keys(bound)), bound
}

// review asks the server.
func (v *Views) review(ctx context.Context, a authorizer.Attributes, open, confirms bool) (bool, error) {
	v.asking.Add(1)
	defer v.asking.Add(-1)
	v.counts.reviews.Inc()
	allowed, err := v.reviews.Decide(ctx, a, open)
	if err == nil && !allowed && confirms {
		allowed, err = v.reviews.Confirm(ctx, a, open)
	}
	return allowed, err
}
