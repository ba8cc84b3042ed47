package personal

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

const (
	// reviewsOfView bounds the namespaces that one view asks about at a time, and reviewsOfAll those of all views.
	reviewsOfView, reviewsOfAll = 8, 64
)

// Reviews decides as the API server does. Its methods are safe for concurrent use.
type Reviews interface {
	// Decide reports whether the server allows something. It fails if the server does not decide.
	Decide(ctx context.Context, a authorizer.Attributes) (bool, error)
	// Confirm is Decide for what the server has denied: it asks again, and does not count an answer of a server that
	// starts.
	Confirm(ctx context.Context, a authorizer.Attributes) (bool, error)
	// BeyondRoles reports whether the server has allowed anything for another reason than a role.
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

// decide returns the namespaces in which the server allows the subject, and how many there are. It fails if the server
// does not decide about one of them. shown are those that the view has: a denial of one of them is confirmed.
func (v *Views) decide(ctx context.Context, s Subject,
	shown *watchcache.Namespaces) (*watchcache.Namespaces, int, error) {
	existing, err := v.cluster.Namespaces()
	if err != nil {
		return nil, 0, err
	}
	everywhere, err := v.review(ctx, s.attributes(""), false)
	if err != nil {
		return nil, 0, err
	}
	if everywhere {
		return watchcache.NewNamespaces(existing, s.ofNamespaces()), len(existing), nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	allowed := map[string]keepwatch.UID{}
	asked := make(chan string)
	var running sync.WaitGroup
	for range reviewsOfView {
		running.Go(func() {
			for namespace := range asked {
				yes, err := v.review(ctx, s.attributes(namespace), shown != nil && shown.Has(namespace))
				if err != nil {
					cancel(err)
					continue
				}
				if yes {
					mu.Lock()
					allowed[namespace] = existing[namespace]
					mu.Unlock()
				}
			}
		})
	}
	for _, namespace := range v.candidates(s, existing) {
		asked <- namespace
	}
	close(asked)
	running.Wait()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	return watchcache.NewNamespaces(allowed, s.ofNamespaces()), len(existing), nil
}

// candidates returns the namespaces that the server is asked about.
func (v *Views) candidates(s Subject, existing map[string]keepwatch.UID) []string {
	all := slices.Sorted(maps.Keys(existing))
	roles := v.cluster.Roles()
	if roles == nil || v.reviews.BeyondRoles() {
		return all
	}
	meant := roles.bound(s.User)
	if s.ofNamespaces() {
		maps.Copy(meant, roles.named(s.User))
	}
	return slices.DeleteFunc(all, func(namespace string) bool { return !meant[namespace] })
}

// review asks the server, when few others are asked at the time.
func (v *Views) review(ctx context.Context, a authorizer.Attributes, confirms bool) (bool, error) {
	select {
	case v.reviewing <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-v.reviewing }()
	v.counts.reviews.Inc()
	allowed, err := v.reviews.Decide(ctx, a)
	if err == nil && !allowed && confirms {
		allowed, err = v.reviews.Confirm(ctx, a)
	}
	return allowed, err
}
