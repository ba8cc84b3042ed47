package proxy

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/watchcache"
	"github.com/keepwatch/keepwatch/store"
)

const (
	// recordEvery is the least time between two writes of a resource to the index on disk.
	recordEvery = time.Second
	// restoreWait bounds the wait of a watch for a resource that the index on disk has. The first list of 50,000 pods as
	// JSON takes kube-apiserver 20 seconds. Watches that do not wait for it are the server's until they end, and it may no
	// longer have their revision.
	restoreWait = time.Minute
)

// index is what caches do with a State. A nil *index does nothing.
type index struct {
	state *State
	// prepared is closed when the others are set.
	prepared chan struct{}
	restored map[string]*store.Records // by name; each until its first use
	resuming map[schema.GroupVersionResource]bool
}

func newIndex(state *State) *index {
	if state == nil {
		return nil
	}
	return &index{state: state, prepared: make(chan struct{}), resuming: map[schema.GroupVersionResource]bool{}}
}

// covers reports whether a resource is in the index: Secrets never are.
func (x *index) covers(of schema.GroupVersionResource) bool {
	return x != nil && of.GroupResource() != secrets
}

// take returns the records that a resource begins with, nil if there are none. caches.mu is locked.
func (x *index) take(name string) *store.Records {
	if x == nil {
		return nil
	}
	records := x.restored[name]
	delete(x.restored, name)
	return records
}

// record writes the records of a cache until it has ended.
func (x *index) record(name string, cache *watchcache.Cache) {
	seen := &store.Snapshot{}
	for ended := false; ; {
		delta, now, newer := cache.RecordsSince(seen)
		if now.Revision() > 0 && now.Cursor() != seen.Cursor() {
			if err := x.state.write(name, delta); err != nil {
				klog.ErrorS(err, "The index on disk is not written any more", "resource", name)
				return
			}
		}
		if seen = now; ended {
			return
		}
		select {
		case <-newer:
		case <-cache.Ended():
		}
		select {
		case <-time.After(recordEvery):
		case <-cache.Ended():
			ended = true
		}
	}
}

// drop removes a resource that is left to the server.
func (x *index) drop(of schema.GroupVersionResource) {
	if !x.covers(of) {
		return
	}
	for _, slim := range []bool{false, true} {
		for _, as := range []verbatim.Encoding{verbatim.JSON{}, verbatim.Protobuf{}} {
			x.dropRepresentation(of, verbatim.Representation{Encoding: as, Slim: slim})
		}
	}
}

// dropRepresentation removes a resource that is no longer followed in a representation.
func (x *index) dropRepresentation(of schema.GroupVersionResource, as verbatim.Representation) {
	if err := x.state.drop(followedName(of, as)); err != nil {
		klog.ErrorS(err, "A resource stays in the index on disk", "resource", of)
	}
}

// followedName is the name of a resource in a representation.
func followedName(of schema.GroupVersionResource, as verbatim.Representation) string {
	return of.Group + "/" + of.Version + "/" + of.Resource + "/" + as.String()
}

// parseName is the inverse of followedName.
func parseName(name string) (of schema.GroupVersionResource, as verbatim.Representation, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return of, as, false
	}
	as, ok = verbatim.ParseRepresentation(parts[3])
	return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}, as, ok
}

// load reads the index, as soon as the server says which cluster it is.
func (x *index) load(ctx context.Context, d discovery.Server) map[string]*store.Records {
	if x == nil {
		return nil
	}
	cluster := d.AwaitCluster(ctx)
	if ctx.Err() != nil {
		return nil
	}
	restored, err := x.state.restore(cluster)
	if err != nil {
		klog.ErrorS(err, "The index on disk can't be read", "file", x.state.path)
	}
	return restored
}

// restore begins to follow the resources of the index. c.mu is locked.
func (c *caches) restore(restored map[string]*store.Records) {
	if c.index == nil {
		return
	}
	defer close(c.index.prepared)
	c.index.restored = restored
	of := map[schema.GroupVersionResource][]verbatim.Representation{}
	for name := range restored {
		if named, as, ok := parseName(name); ok && c.cached.Allows(named.GroupResource()) && c.slimming.mayUse(as) {
			of[named] = append(of[named], as)
		} else {
			delete(restored, name)
		}
	}
	for named, representations := range of {
		c.index.resuming[named] = true
		c.begin(named, func(*discovery.Resource) []verbatim.Representation { return representations })
	}
}

// awaitRestored waits until a resource that the index on disk has is caught up, for a watch that resumes.
func (c *caches) awaitRestored(q *http.Request, info *request.RequestInfo) {
	if from := q.URL.Query().Get("resourceVersion"); c.index == nil || info.Verb != "watch" || from == "" || from == "0" {
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), restoreWait)
	defer cancel()
	select {
	case <-c.index.prepared:
	case <-ctx.Done():
		return
	}
	of := resourceOf(info)
	c.mu.Lock()
	e, resuming := c.all[of], c.index.resuming[of]
	c.mu.Unlock()
	if e == nil || !resuming {
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
