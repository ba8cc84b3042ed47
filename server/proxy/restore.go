package proxy

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/keepwatch/keepwatch/server/watchcache"
)

// restoreWait bounds the wait of a watch for a resource that the index on disk has. The first list of 50,000 pods as
// JSON takes kube-apiserver 20 seconds. Watches that do not wait for it are the server's until they end, and it may no
// longer have their revision.
const restoreWait = time.Minute

// awaitRestored waits until a resource that the index on disk has is caught up, for a watch that resumes.
func (c *caches) awaitRestored(q *http.Request, info *request.RequestInfo) {
	if from := q.URL.Query().Get("resourceVersion"); info.Verb != "watch" || from == "" || from == "0" {
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), restoreWait)
	defer cancel()
	of := resourceOf(info)
	if !c.index.Resumes(ctx, of) {
		return
	}
	c.mu.Lock()
	e := c.all[of]
	c.mu.Unlock()
	if e == nil {
		return
	}
	select {
	case <-e.started:
	case <-ctx.Done():
		return
	}
	if cache := c.restoring(e, q, info); cache != nil {
		awaitReady(ctx, cache)
	}
}

// restoring returns the cache that will answer a request, nil if there is none.
func (c *caches) restoring(e *entry, q *http.Request, info *request.RequestInfo) *watchcache.Cache {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.about == nil {
		return nil
	}
	as, ok := c.representationOf(e.about, q, info)
	f := e.followers[as]
	if !ok || f == nil {
		return nil
	}
	return f.reader.Cache()
}

// awaitReady waits until a cache is ready or has ended, or until ctx ends.
func awaitReady(ctx context.Context, cache *watchcache.Cache) {
	for ctx.Err() == nil && cache.WaitUntilReady(ctx) != nil {
		select {
		case <-cache.Ended():
			return
		default:
		}
	}
}
