package garbage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// source is where the objects of a resource are read.
type source struct {
	resource schema.GroupVersionResource
	example  runtime.Object // of the objects' type
	objects  cache.ListerWatcher
	stop     context.CancelFunc // nil until the source is followed
	synced   atomic.Bool        // the first list is in the graph
	ended    chan struct{}      // closed when following has ended
}

// sources are those of all resources. Several of a resource have the same objects, as the storages of the versions of a
// custom resource do: the first is followed.
type sources struct {
	mu         sync.Mutex
	byResource map[schema.GroupResource][]*source
	ctx        context.Context // nil until the collector runs
	running    sync.WaitGroup
}

// Follow adds a source of the objects of a resource. remove removes it, and returns when it is no longer read.
func (c *Collector) Follow(resource schema.GroupVersionResource, example runtime.Object, objects cache.ListerWatcher) (remove func()) {
	added := &source{resource: resource, example: example, objects: objects, ended: make(chan struct{})}
	s := &c.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	of := resource.GroupResource()
	s.byResource[of] = append(s.byResource[of], added)
	c.followFirst(of)
	return sync.OnceFunc(func() { c.unfollow(added) })
}

// start follows the sources that were added before the collector runs.
func (c *Collector) start(ctx context.Context) {
	s := &c.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
	for resource := range s.byResource {
		c.followFirst(resource)
	}
}

// synced reports whether the objects of all resources are known.
func (s *sources) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.byResource {
		if !of[0].synced.Load() {
			return false
		}
	}
	return true
}

// followFirst follows the first source of a resource, unless it is followed. The caller has locked the sources.
func (c *Collector) followFirst(resource schema.GroupResource) {
	s := &c.sources
	if s.ctx == nil || s.ctx.Err() != nil || len(s.byResource[resource]) == 0 || s.byResource[resource][0].stop != nil {
		return
	}
	first := s.byResource[resource][0]
	ctx, cancel := context.WithCancel(s.ctx)
	first.stop = cancel
	s.running.Go(func() {
		defer close(first.ended)
		c.follow(ctx, first)
	})
}

// unfollow removes a source, and follows the next one of the resource. The objects stay known until that one has listed
// them: a definition that changes replaces its sources, and owners may wait for the objects.
func (c *Collector) unfollow(removed *source) {
	s := &c.sources
	of := removed.resource.GroupResource()
	s.mu.Lock()
	followed := removed.stop != nil
	s.mu.Unlock()
	if followed {
		removed.stop()
		<-removed.ended
	}
	s.mu.Lock()
	s.byResource[of] = slices.DeleteFunc(s.byResource[of], func(other *source) bool { return other == removed })
	if len(s.byResource[of]) == 0 {
		delete(s.byResource, of)
	}
	c.followFirst(of)
	s.mu.Unlock()
	c.forgetUndefined(of)
	select {
	case c.unfollowed <- struct{}{}:
	default:
	}
}

// Follows reports whether a resource has a source.
func (c *Collector) Follows(resource schema.GroupResource) bool {
	c.sources.mu.Lock()
	defer c.sources.mu.Unlock()
	return len(c.sources.byResource[resource]) > 0
}

// Unfollowed receives after sources were removed.
func (c *Collector) Unfollowed() <-chan struct{} { return c.unfollowed }

// forgetUndefined removes the objects of a resource that has neither a source nor a definition: none will list them.
func (c *Collector) forgetUndefined(resource schema.GroupResource) {
	if !c.Follows(resource) && !c.graph.has(definitions, resource.String()) {
		c.forget(resource, nil)
	}
}

// forget removes the objects of a resource that are from other sources.
func (c *Collector) forget(resource schema.GroupResource, except *source) {
	for _, n := range c.graph.of(resource) {
		if n.from != except {
			c.remove(n.uid)
		}
	}
}

// follow follows the objects of a source until ctx is done.
func (c *Collector) follow(ctx context.Context, from *source) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: from.objects,
		ObjectType:    from.example,
		Transform:     onlyMetadata,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { c.put(from, o) },
			UpdateFunc: func(before, o any) {
				if before.(metav1.Object).GetUID() != o.(metav1.Object).GetUID() { // replaced while the watch was interrupted
					c.deleted(from, before)
				}
				c.put(from, o)
			},
			DeleteFunc: func(o any) { c.deleted(from, o) },
		},
	})
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	select {
	case <-informer.HasSyncedChecker().Done():
		c.forget(from.resource.GroupResource(), from)
		from.synced.Store(true)
	case <-ctx.Done():
	}
	running.Wait()
}
