package proxy

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

const (
	// requiredWait is how long a read that the server cannot answer waits for the first list of its resource: one with a
	// shard selector, and a personal view.
	requiredWait = 10 * time.Second
	// firstListWait bounds the wait of reads for the first list of their resource, from the moment on in which the proxy
	// begins to follow it: the first reader of a small resource is answered from memory, and those of a large one do not
	// wait for it.
	firstListWait = 2 * time.Second
)

// await is ready, and waits for the first list of the resource as long as the request may: one that resumes after a
// restart, one that the server cannot answer, and one that it need not answer.
func (c *caches) await(q *http.Request, info *request.RequestInfo) (*follower, reason) {
	f, why := c.ready(q, info)
	if why != reasonNotReady {
		return f, why
	}
	c.awaitRestored(q, info)
	switch {
	case isSharded(q, info):
		return c.awaitRequired(q, info)
	case isConsistentRead(q, info): // the server answers those of small collections anyhow
		return nil, why
	}
	ctx, cancel := context.WithDeadline(q.Context(), c.begunAt(q, info).Add(c.firstListWait))
	defer cancel()
	return c.awaitFollower(ctx, q, info)
}

// awaitRequired is ready, and waits until the resource is left to the server, or for requiredWait.
func (c *caches) awaitRequired(q *http.Request, info *request.RequestInfo) (*follower, reason) {
	ctx, cancel := context.WithTimeout(q.Context(), requiredWait)
	defer cancel()
	return c.awaitFollower(ctx, q, info)
}

// begunAt returns when the proxy began to follow a resource as the response to a request needs it, the zero time if it
// does not.
func (c *caches) begunAt(q *http.Request, info *request.RequestInfo) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[resourceOf(info)]
	if e == nil {
		return time.Time{}
	}
	if e.about != nil {
		if as, ok := c.representationOf(e.about, q, info); ok && e.followers[as] != nil {
			return e.followers[as].begun
		}
	}
	return e.begun
}

// awaitFollower is ready, and waits until the resource is left to the server, or until ctx ends.
func (c *caches) awaitFollower(ctx context.Context, q *http.Request, info *request.RequestInfo) (*follower, reason) {
	for begun := (*entry)(nil); ; {
		f, why := c.ready(q, info)
		e := c.following(info)
		if why != reasonNotReady || ctx.Err() != nil || e == nil {
			return f, why
		}
		if begun != e { // ready begins to follow what the response needs when the resource is described
			select {
			case <-e.started:
				begun = e
				continue
			case <-ctx.Done():
				return nil, why
			}
		}
		cache := c.restoring(e, q, info)
		if cache == nil {
			return nil, why
		}
		awaitReady(ctx, cache)
		select {
		case <-cache.Ended():
			return nil, why
		default:
		}
	}
}
