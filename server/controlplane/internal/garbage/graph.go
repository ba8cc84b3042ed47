package garbage

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// node is an object. It is immutable.
type node struct {
	listing         uint64 // which one the object was read in; see source
	resource        schema.GroupResource
	namespace, name string
	uid             types.UID
	owners          []metav1.OwnerReference
	// deleting is how the object is being deleted, and read how many waits for dependents had begun when that was read
	// first.
	deleting deletion
	read     uint64
}

// deletion is the state of an object's deletion.
type deletion uint8

const (
	notDeleted   deletion = iota
	deleted               // and kept by others' finalizers
	inForeground          // waits for its dependents' deletion
	orphaning             // waits until no dependent refers to it
)

// deletionOf returns the state of an object's deletion.
func deletionOf(object metav1.Object) deletion {
	switch {
	case object.GetDeletionTimestamp() == nil:
		return notDeleted
	case slices.Contains(object.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return orphaning
	case slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return inForeground
	default:
		return deleted
	}
}

// is reports whether an object has a resource, a namespace and a name. A nil object has none.
func (n *node) is(resource schema.GroupResource, namespace, name string) bool {
	return n != nil && n.resource == resource && n.namespace == namespace && n.name == name
}

// refersTo reports whether an object has a reference to an owner.
func (n *node) refersTo(owner types.UID) bool {
	return slices.ContainsFunc(n.owners, func(o metav1.OwnerReference) bool { return o.UID == owner })
}

// blocks reports whether an object delays the deletion of an owner in the foreground.
func (n *node) blocks(owner types.UID) bool {
	return slices.ContainsFunc(n.owners, func(o metav1.OwnerReference) bool {
		return o.UID == owner && o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion
	})
}

// graph is the objects that are known, and the dependents of each owner, which may be unknown itself.
type graph struct {
	mu         sync.Mutex
	nodes      map[types.UID]*node
	dependents map[types.UID]map[types.UID]struct{}
	// deleted are the owners in dependents whose deletion was observed.
	deleted map[types.UID]*node
}

func newGraph() *graph {
	return &graph{nodes: map[types.UID]*node{}, dependents: map[types.UID]map[types.UID]struct{}{},
		deleted: map[types.UID]*node{}}
}

// put adds or replaces an object. It returns the one that it replaces; nil for none.
func (g *graph) put(n *node) (before *node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before = g.nodes[n.uid]
	g.unlink(before, n)
	g.nodes[n.uid] = n
	delete(g.deleted, n.uid)
	for _, owner := range n.owners {
		if g.dependents[owner.UID] == nil {
			g.dependents[owner.UID] = map[types.UID]struct{}{}
		}
		g.dependents[owner.UID][n.uid] = struct{}{}
	}
	return before
}

// remove removes an object, and returns it; nil if it is unknown.
func (g *graph) remove(uid types.UID) *node {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.nodes[uid]
	g.unlink(n, nil)
	delete(g.nodes, uid)
	return n
}

// markDeleted records that a known object was deleted, if it has dependents.
func (g *graph) markDeleted(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.nodes[uid]; n != nil && len(g.dependents[uid]) > 0 {
		g.deleted[uid] = n
	}
}

// lastOf returns an owner that was deleted, as long as it has dependents; nil otherwise.
func (g *graph) lastOf(uid types.UID) *node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.deleted[uid]
}

// unlink removes an object from its owners' dependents, except from those of its successor.
func (g *graph) unlink(n, successor *node) {
	if n == nil {
		return
	}
	for _, owner := range n.owners {
		if successor != nil && successor.refersTo(owner.UID) {
			continue
		}
		delete(g.dependents[owner.UID], n.uid)
		if len(g.dependents[owner.UID]) == 0 {
			delete(g.dependents, owner.UID)
			delete(g.deleted, owner.UID)
		}
	}
}

// get returns an object; nil if it is unknown.
func (g *graph) get(uid types.UID) *node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nodes[uid]
}

// of returns the objects of a resource.
func (g *graph) of(resource schema.GroupResource) []*node {
	g.mu.Lock()
	defer g.mu.Unlock()
	var found []*node
	for _, n := range g.nodes {
		if n.resource == resource {
			found = append(found, n)
		}
	}
	return found
}

// has reports whether an object without a namespace is known.
func (g *graph) has(resource schema.GroupResource, name string) bool {
	return slices.ContainsFunc(g.of(resource), func(n *node) bool { return n.name == name })
}

// dependentsOf returns the objects that refer to an owner.
func (g *graph) dependentsOf(owner types.UID) []*node {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := make([]*node, 0, len(g.dependents[owner]))
	for uid := range g.dependents[owner] {
		found = append(found, g.nodes[uid])
	}
	return found
}
