package garbage

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Objects are the objects of a resource in the server's memory, as package watchcache has them. The collector keeps
// nothing of them except their metadata.
type Objects interface {
	// Ready is closed when the objects are no older than when the server began to read them.
	Ready() <-chan struct{}
	// WaitForNewest waits a few seconds until the objects have what was written before the call. It fails with the API's
	// Timeout if that was too short.
	WaitForNewest(ctx context.Context) (keepwatch.Revision, error)
	// Changes returns a watcher of all changes after a cursor, also of objects that are no longer kept up to date.
	Changes(from store.Cursor) *store.Watcher
	// Metadata returns the metadata of one of the objects. It fails for a damaged one.
	Metadata(keepwatch.Object) (*metav1.ObjectMeta, error)
}

// source is where the objects of a resource are read.
type source struct {
	resource schema.GroupResource
	objects  Objects
	synced   atomic.Bool // listed was true once

	// Only follow uses watcher, listing and listed.
	watcher *store.Watcher // nil until the objects are ready, and after their history was lost
	listing uint64         // which objects the graph has from the watcher
	listed  bool           // the graph has all objects of the watcher, and no others
}

// sources are those of all resources. Several of a resource have the same objects, as the storages of the versions of a
// custom resource do: the first is followed.
type sources struct {
	mu         sync.Mutex
	byResource map[schema.GroupResource][]*source
	removed    []*source       // until follow has read them to their end
	following  context.Context // of follow; nil before and after
	awaiting   []chan struct{} // closed once follow has read all sources
	changed    chan struct{}   // of capacity 1: sources were added or removed since it was received from
	read       chan struct{}   // of capacity 1: follow has read all sources since it was received from
	// listings is the number of the newest listing, and reached has the revision of the newest change of each resource
	// that is in the graph. Only follow uses them.
	listings uint64
	reached  map[schema.GroupResource]keepwatch.Revision
}

func newSources() sources {
	return sources{
		byResource: map[schema.GroupResource][]*source{}, changed: make(chan struct{}, 1),
		read: make(chan struct{}, 1), reached: map[schema.GroupResource]keepwatch.Revision{},
	}
}

// Follow adds a source of the objects of a resource. remove removes it, after the objects have what was written before:
// the last deletions of a resource whose definition is deleted, too, are known then. The next source of the resource is
// followed then. The objects stay known until that one has listed them: a definition that changes replaces its sources,
// and owners may wait for the objects.
func (c *Collector) Follow(resource schema.GroupResource, objects Objects) (remove func()) {
	added := &source{resource: resource, objects: objects}
	c.sources.change(func(s *sources) { s.byResource[resource] = append(s.byResource[resource], added) })
	return sync.OnceFunc(func() {
		c.sources.awaitLast(added)
		c.sources.change(func(s *sources) {
			s.byResource[resource] = slices.DeleteFunc(s.byResource[resource], func(other *source) bool {
				return other == added
			})
			if len(s.byResource[resource]) == 0 {
				delete(s.byResource, resource)
			}
			s.removed = append(s.removed, added)
		})
		signal(c.unfollowed)
	})
}

// lastWait bounds how long the removal of a source waits for the last changes of its objects.
const lastWait = 30 * time.Second

// awaitLast waits until a source has what was written before the call, also one behind the first of its resource: it is
// followed, as soon as that one is removed.
func (s *sources) awaitLast(of *source) {
	s.mu.Lock()
	following := s.following
	s.mu.Unlock()
	if following == nil {
		return
	}
	select {
	case <-of.objects.Ready():
	default: // nothing of it was read
		return
	}
	ctx, cancel := context.WithTimeout(following, lastWait)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := of.objects.WaitForNewest(ctx); !apierrors.IsTimeout(err) {
			return
		}
	}
}

// awaitNewest waits until the graph has what was written before the call, except to resources that were not read yet.
func (s *sources) awaitNewest(ctx context.Context) error {
	var mu sync.Mutex
	var failed error
	var waits sync.WaitGroup
	s.mu.Lock()
	for _, of := range s.byResource {
		if first := of[0]; first.synced.Load() {
			waits.Go(func() {
				if _, err := first.objects.WaitForNewest(ctx); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = err
				}
			})
		}
	}
	s.mu.Unlock()
	if waits.Wait(); failed != nil {
		return failed
	}
	read := make(chan struct{})
	s.change(func(s *sources) { s.awaiting = append(s.awaiting, read) })
	select {
	case <-read:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change changes the sources, and wakes follow.
func (s *sources) change(by func(*sources)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by(s)
	signal(s.changed)
}

// signal sends to a channel of capacity 1, unless it is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// followed returns the sources that are followed, those that were removed since the last call, and the waits that have
// begun since it, until all are read.
func (s *sources) followed() (first, removed []*source, awaiting []chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.byResource {
		first = append(first, of[0])
	}
	removed, s.removed = s.removed, nil
	awaiting, s.awaiting = s.awaiting, nil
	return first, removed, awaiting
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

// Follows reports whether a resource has a source.
func (c *Collector) Follows(resource schema.GroupResource) bool {
	c.sources.mu.Lock()
	defer c.sources.mu.Unlock()
	return len(c.sources.byResource[resource]) > 0
}

// Unfollowed receives after sources were removed.
func (c *Collector) Unfollowed() <-chan struct{} { return c.unfollowed }

// follow keeps the graph equal to the sources until ctx is done. It waits for all of them in one goroutine.
func (c *Collector) follow(ctx context.Context) {
	c.sources.change(func(s *sources) { s.following = ctx })
	defer c.sources.change(func(s *sources) { s.following = nil })
	for ctx.Err() == nil {
		followed, removed, awaiting := c.sources.followed()
		for _, s := range removed {
			if s.watcher != nil {
				c.read(s) // to its end
			}
			c.forgetUndefined(s.resource)
		}
		wait := []reflect.SelectCase{receive(ctx.Done()), receive(c.sources.changed)}
		for _, s := range followed {
			wait = append(wait, receive(c.read(s)))
		}
		signal(c.sources.read)
		for _, read := range awaiting {
			close(read)
		}
		reflect.Select(wait)
	}
}

func receive(from <-chan struct{}) reflect.SelectCase {
	return reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(from)}
}

// read applies to the graph what has changed in a source. It returns a channel that is closed when there may be more.
func (c *Collector) read(from *source) <-chan struct{} {
	select {
	case <-from.objects.Ready():
	default:
		return from.objects.Ready()
	}
	for {
		if from.watcher == nil {
			c.sources.listings++
			from.watcher, from.listing, from.listed = from.objects.Changes(store.Cursor{}), c.sources.listings, false
		}
		delivery, newer, err := from.watcher.TryNext()
		switch d := delivery.(type) {
		case keepwatch.Batch:
			c.apply(from, d.Changes)
		case keepwatch.Gap: // also the first delivery
			c.apply(from, d.Changes)
		default:
			if err == nil {
				return newer
			}
			from.watcher = nil // too far behind
		}
	}
}

// apply applies changes of a source to the graph. An object whose metadata cannot be read stays as it was known.
func (c *Collector) apply(from *source, changes []keepwatch.Change) {
	reached := c.sources.reached[from.resource]
	var newest keepwatch.Revision
	for _, change := range changes {
		newest = max(newest, change.Revision)
		object := change.Object
		if change.Type == keepwatch.Deleted {
			object = change.Prior
		}
		metadata, err := from.objects.Metadata(object)
		switch {
		case err != nil:
			utilruntime.HandleError(err)
		case change.Type == keepwatch.Deleted:
			c.deleted(from.resource, metadata)
		default:
			c.put(from, metadata)
		}
	}
	// Another source of the resource may have been ahead.
	if !from.listed && from.watcher.Cursor().Revision >= reached {
		from.listed = true
		c.forget(from.resource, from.listing)
		from.synced.Store(true)
	}
	if from.listed && len(changes) > 0 {
		c.sources.reached[from.resource] = newest
	}
}

// forgetUndefined removes the objects of a resource that has neither a source nor a definition: none will list them.
func (c *Collector) forgetUndefined(resource schema.GroupResource) {
	if !c.Follows(resource) && !c.graph.has(definitions, resource.String()) {
		c.forget(resource, 0)
		delete(c.sources.reached, resource)
	}
}

// forget removes the objects of a resource that are from other listings.
func (c *Collector) forget(resource schema.GroupResource, except uint64) {
	for _, n := range c.graph.of(resource) {
		if n.listing != except {
			c.remove(n.uid)
		}
	}
}
