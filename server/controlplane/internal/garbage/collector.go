package garbage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"

	"github.com/keepwatch/keepwatch/server/internal/worker"
)

// The delays before an object is handled again after an error; they double.
const (
	minDelay = 20 * time.Millisecond
	maxDelay = 30 * time.Second
	// rediscovery is the time between two requests of discovery for owners of unknown kinds.
	rediscovery = time.Second
)

// syncTimeout is how long Run waits for the first lists, as kube-controller-manager does: one that fails permanently
// must not stop the collection of others.
const syncTimeout = 30 * time.Second

// Collector collects garbage. Its methods are safe for concurrent use.
type Collector struct {
	metadata metadata.Interface
	kinds    *restmapper.DeferredDiscoveryRESTMapper
	// discovered is when kinds was reset last. Only Run uses it.
	discovered time.Time
	graph      *graph
	worker     *worker.Worker[types.UID]
	sources    sources
	unfollowed chan struct{} // of capacity 1
	// awaiting waits for dependents, one wait at a time, beside worker: a source that stays behind delays nothing else.
	// waits counts the waits that have begun.
	awaiting *worker.Worker[struct{}]
	waits    atomic.Uint64
	mu       sync.Mutex
	waited   uint64                 // the number of the last wait that has succeeded
	aside    map[types.UID]struct{} // the owners that are handled again after the next one
}

// definitions are the objects that define other resources, and have their names.
var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// New returns a collector that writes by clients of the server.
func New(discovery discovery.DiscoveryInterface, metadata metadata.Interface) *Collector {
	c := &Collector{
		metadata: metadata,
		kinds:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		graph:    newGraph(),
		sources:  newSources(), unfollowed: make(chan struct{}, 1),
		aside: map[types.UID]struct{}{},
	}
	c.worker = worker.New(worker.Options[types.UID]{
		Handle: c.handle, Retrying: c.report, MinDelay: minDelay, MaxDelay: maxDelay,
	})
	c.awaiting = worker.New(worker.Options[struct{}]{
		Handle: c.awaitDependents, Retrying: c.reportAwaiting, MinDelay: minDelay, MaxDelay: maxDelay,
	})
	return c
}

// put adds an object to the graph, and enqueues whom the change concerns.
func (c *Collector) put(from *source, object *metav1.ObjectMeta) {
	n := &node{
		listing: from.listing, resource: from.resource, namespace: object.Namespace, name: object.Name, uid: object.UID,
		owners: object.OwnerReferences, deleting: deletionOf(object), read: c.waits.Load(),
	}
	if known := c.graph.get(n.uid); known != nil && known.deleting == n.deleting {
		n.read = known.read // a change during each wait would delay it for ever
	}
	before := c.graph.put(n)
	switch {
	case n.deleting == inForeground || n.deleting == orphaning:
		c.worker.Add(n.uid)
	case len(n.owners) > 0 && (before == nil || !equality.Semantic.DeepEqual(before.owners, n.owners)):
		c.worker.Add(n.uid)
	}
	if before == nil {
		return
	}
	for _, owner := range before.owners { // one may wait for this reference to go, or to block no longer
		c.worker.Add(owner.UID)
	}
}

// deleted removes an object that was deleted.
func (c *Collector) deleted(resource schema.GroupResource, object *metav1.ObjectMeta) {
	c.graph.markDeleted(object.UID)
	c.remove(object.UID)
	if resource == definitions {
		c.forgetUndefined(schema.ParseGroupResource(object.Name))
	}
}

// remove removes an object from the graph, and enqueues its dependents, and the owners that may wait for it.
func (c *Collector) remove(uid types.UID) {
	n := c.graph.remove(uid)
	if n == nil {
		return
	}
	for _, dependent := range c.graph.dependentsOf(n.uid) {
		c.worker.Add(dependent.uid)
	}
	for _, owner := range n.owners {
		c.worker.Add(owner.UID)
	}
}

// Run collects garbage until ctx is done. complete is closed when the sources of all resources were added. Run begins
// when the objects of these are known, since the dependents of an owner may be any of them, or after 30 s.
func (c *Collector) Run(ctx context.Context, complete <-chan struct{}) {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { c.follow(ctx) })
	beside.Go(func() { c.awaiting.Run(ctx) })
	c.waitForSync(ctx, complete)
	c.worker.Run(ctx)
}

func (c *Collector) waitForSync(ctx context.Context, complete <-chan struct{}) {
	err := c.awaitSync(ctx, complete)
	if err != nil && ctx.Err() == nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Garbage collection begins, although not all objects are known")
	}
}

// awaitSync waits until the objects of all sources are known. It returns an error after syncTimeout.
func (c *Collector) awaitSync(ctx context.Context, complete <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	select {
	case <-complete:
	case <-ctx.Done():
		return ctx.Err()
	}
	for !c.sources.synced() {
		select {
		case <-c.sources.read: // by follow, which may have completed them
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// report reports an error, unless the owner's kind or the owner itself is not known yet.
func (c *Collector) report(ctx context.Context, uid types.UID, err error) {
	n := c.graph.get(uid)
	if n == nil || meta.IsNoMatchError(err) || errors.Is(err, errUnknownOwner) {
		return
	}
	utilruntime.HandleErrorWithContext(ctx, err, "Collection of an object is retried",
		"resource", n.resource, "namespace", n.namespace, "name", n.name)
}

// handle does what an object needs in its state.
func (c *Collector) handle(ctx context.Context, uid types.UID) error {
	n := c.graph.get(uid)
	if n == nil {
		return nil
	}
	switch n.deleting {
	case orphaning, inForeground:
		switch {
		case !c.knowsDependents(n):
			return nil
		case n.deleting == orphaning:
			return c.orphan(ctx, n)
		}
		return c.deleteDependents(ctx, n)
	case deleted:
		return nil
	}
	err := c.collect(ctx, n)
	if errors.Is(err, errNamespacedOwner) { // it is left alone: no later attempt finds the owner
		return nil
	}
	return err
}
