package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
)

// namedRetry is how often the server is asked for a resource that Config.Cached names and that it does not serve, or
// refuses to the proxy: its definition or the proxy's role may follow.
const namedRetry = 30 * time.Second

// followNamed begins to follow a resource that Config.Cached names, before anybody reads it. It tries until the server
// has described the resource, or ctx ends. A proxy does not end for a name that the server does not serve: an API
// server that starts does not serve all of its resources at once, and a definition may be installed later than the
// proxy.
func (c *caches) followNamed(ctx context.Context, name schema.GroupResource) {
	for ctx.Err() == nil {
		again := c.namedRetry
		err := c.beginNamed(ctx, name)
		switch {
		case err == nil:
			c.setUnfollowed(name, nil)
			return
		case answers(err) && c.probe.Ready(ctx) == nil:
			c.setUnfollowed(name, err)
		default: // it is down, starts, or is busy: not known
			again = unansweredFor
		}
		pause(ctx, again)
	}
}

// beginNamed follows the version of a resource that the server prefers, unless it is followed. It returns why the
// server does not describe it.
func (c *caches) beginNamed(ctx context.Context, name schema.GroupResource) error {
	of, err := c.describer.find(ctx, name)
	if err != nil {
		return err
	}
	c.mu.Lock()
	e := c.all[of]
	if e == nil && c.hasRoom() || e != nil && !e.until.IsZero() && !e.described {
		c.begin(of, c.earlyRepresentation)
		if e = c.all[of]; e != nil {
			e.early = true
		}
	}
	c.mu.Unlock()
	if e == nil {
		return errors.New("the proxy follows as many resources as it can")
	}
	select {
	case <-e.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.why
}

// earlyRepresentation is what a resource is followed in before a request says in which encoding it is needed: every
// resource has JSON.
func (c *caches) earlyRepresentation(*resource) []verbatim.Representation {
	return []verbatim.Representation{{Encoding: verbatim.JSON{}, Slim: c.slimming.applies("")}}
}

// dropEarly ends the followers of a resource that were begun for no request, because a request needs another
// representation: the objects are not in memory twice unless somebody reads both. c.mu is locked.
func (c *caches) dropEarly(e *entry) {
	for as, f := range e.followers {
		if f.early {
			delete(e.followers, as)
			f.end()
		}
	}
}

// setUnfollowed records why a resource that Config.Cached names is not followed; nil if it is.
func (c *caches) setUnfollowed(name schema.GroupResource, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.unfollowed[name]
	if why == nil {
		delete(c.unfollowed, name)
		if before != "" {
			klog.InfoS("A resource that is to be cached is there now", "resource", name.String())
		}
		return
	}
	if c.unfollowed == nil {
		c.unfollowed = map[schema.GroupResource]string{}
	}
	c.unfollowed[name] = why.Error()
	if before != why.Error() {
		klog.ErrorS(why, "A resource that is to be cached is not: its reads are forwarded", "resource", name.String())
	}
}

// UnfollowedStatus is why a resource that [Config].Cached names is not followed.
type UnfollowedStatus struct {
	Resource string `json:"resource"` // as in Config.Cached
	Reason   string `json:"reason"`
}

// unfollowedStatus returns the named resources that are not followed, in the order of their names.
func (c *caches) unfollowedStatus() (all []UnfollowedStatus) {
	named, _ := c.cached.Named()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range named {
		if why := c.unfollowed[name]; why != "" {
			all = append(all, UnfollowedStatus{name.String(), why})
		}
	}
	return all
}

// find returns the version in which the server serves a resource: the one that it prefers for the group, or else the
// first that has it.
func (d describer) find(ctx context.Context, name schema.GroupResource) (schema.GroupVersionResource, error) {
	versions := []schema.GroupVersion{{Version: "v1"}}
	if name.Group != "" {
		var err error
		if versions, err = d.versions(ctx, name.Group); err != nil {
			return schema.GroupVersionResource{}, err
		}
	}
	for _, version := range versions {
		list, err := d.resources(ctx, version)
		if err != nil {
			return schema.GroupVersionResource{}, err
		}
		if slices.ContainsFunc(list, func(known metav1.APIResource) bool { return known.Name == name.Resource }) {
			return version.WithResource(name.Resource), nil
		}
	}
	if name.Group == "" { // which a user may have left out
		return schema.GroupVersionResource{},
			fmt.Errorf("%w in the core group ('kubectl api-resources -o name' has the names)", notServed(name))
	}
	return schema.GroupVersionResource{}, notServed(name)
}

func notServed(name fmt.Stringer) error { return fmt.Errorf("the server has no resource %s", name) }

// versions returns the versions of a group that the server serves, the preferred one first. There are none if it has no
// such group.
func (d describer) versions(ctx context.Context, group string) (all []schema.GroupVersion, err error) {
	body, _, err := d.get(ctx, "/apis/"+group, nil)
	if refused, ok := errors.AsType[refusal](err); ok && refused.code == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var known metav1.APIGroup
	if err := json.Unmarshal(body, &known); err != nil {
		return nil, fmt.Errorf("the description of %s: %w", group, err)
	}
	for _, version := range append([]metav1.GroupVersionForDiscovery{known.PreferredVersion}, known.Versions...) {
		named := schema.GroupVersion{Group: group, Version: version.Version}
		if version.Version != "" && !slices.Contains(all, named) {
			all = append(all, named)
		}
	}
	return all, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
