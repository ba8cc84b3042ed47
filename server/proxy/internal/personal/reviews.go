package personal

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// A view asks about reviewsOfView namespaces at a time, as long as no more than moreAskers goroutines of all views ask
// beside those that wait for them; beyond that about one.
const reviewsOfView, moreAskers = 8, 64

// Reviews decides as the API server does. Its methods are safe for concurrent use.
type Reviews interface {
	// Decide reports whether the server allows something. It fails if the server does not decide, and, unless a watch is
	// open, if it would have to wait for long until the server is asked.
	Decide(ctx context.Context, a authorizer.Attributes, open bool) (bool, error)
	// Confirm is Decide for what the server has denied: it asks again, and does not count an answer of a server that
	// starts.
	Confirm(ctx context.Context, a authorizer.Attributes, open bool) (bool, error)
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

// decide returns the namespaces in which the server allows the subject, and how many there are. It fails if the server
// does not decide about one of them. shown are those that the view has: a denial of one of them is confirmed. open is
// whether that is for open watches.
func (v *Views) decide(ctx context.Context, s Subject, shown *watchcache.Namespaces,
	open bool) (*watchcache.Namespaces, int, error) {
	existing, err := v.cluster.Namespaces()
	if err != nil {
		return nil, 0, err
	}
	everywhere, err := v.review(ctx, s.attributes(""), open, false)
	if err != nil {
		return nil, 0, err
	}
	if everywhere {
		return watchcache.NewNamespaces(existing, s.ofNamespaces()), len(existing), nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	candidates := v.candidates(s, existing)
	decisions := make([]bool, len(candidates))
	var next atomic.Int64
	ask := func() {
		for i := next.Add(1) - 1; i < int64(len(candidates)) && ctx.Err() == nil; i = next.Add(1) - 1 {
			var err error
			decisions[i], err = v.review(ctx, s.attributes(candidates[i]), open, shown != nil && shown.Has(candidates[i]))
			if err != nil {
				cancel(err)
			}
		}
	}
	var running sync.WaitGroup
	for range min(reviewsOfView, len(candidates)) - 1 {
		select {
		case v.askers <- struct{}{}:
			running.Go(func() {
				defer func() { <-v.askers }()
				ask()
			})
		default:
		}
	}
	ask()
	running.Wait()
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	allowed := map[string]keepwatch.UID{}
	for i, namespace := range candidates {
		if decisions[i] {
			allowed[namespace] = existing[namespace]
		}
	}
	return watchcache.NewNamespaces(allowed, s.ofNamespaces()), len(existing), nil
}

// candidates returns the namespaces that the server is asked about.
func (v *Views) candidates(s Subject, existing map[string]keepwatch.UID) []string {
	roles := v.cluster.Roles()
	if roles == nil || v.reviews.BeyondRoles() {
		return slices.Sorted(maps.Keys(existing))
	}
	meant := roles.bound(s.User)
	if s.ofNamespaces() {
		maps.Copy(meant, roles.named(s.User))
	}
	maps.DeleteFunc(meant, func(namespace string, _ bool) bool {
		_, exists := existing[namespace]
		return !exists
	})
	return slices.Sorted(maps.Keys(meant))
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
