package proxy

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
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
		_ = pause.For(ctx, again)
	}
}

// beginNamed follows the version of a resource that the server prefers, unless it is followed. It returns why the
// server does not describe it.
func (c *caches) beginNamed(ctx context.Context, name schema.GroupResource) error {
	of, err := c.describer.Find(ctx, name)
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
func (c *caches) earlyRepresentation(*discovery.Resource) []verbatim.Representation {
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
