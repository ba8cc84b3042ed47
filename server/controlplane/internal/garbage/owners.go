package garbage

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// owners are the references of an object to its owners, by their state.
type owners struct {
	solid   []metav1.OwnerReference // the owner exists
	gone    []metav1.OwnerReference
	waiting []metav1.OwnerReference // the owner waits for the object's deletion
	// unknown is true if only a request found one of the owners: no change of that one is observed.
	unknown bool
}

// errNamespacedOwner says that an object of the cluster has an owner of a namespaced kind, which cannot be found.
var errNamespacedOwner = errors.New("the owner of an object of the cluster is of a namespaced kind")

// classify finds out which owners of an object exist.
func (c *Collector) classify(ctx context.Context, namespace string,
	references []metav1.OwnerReference) (owners, error) {
	var all owners
	for _, reference := range references {
		state, exists, known, err := c.find(ctx, namespace, reference)
		all.unknown = all.unknown || !known
		switch {
		case err != nil:
			return owners{}, err
		case !exists:
			all.gone = append(all.gone, reference)
		case state == inForeground:
			all.waiting = append(all.waiting, reference)
		default:
			all.solid = append(all.solid, reference)
		}
	}
	return all, nil
}

// find returns the state of an owner. It asks the server about one that is not known, or has another kind, name or
// namespace than the reference says: no such owner counts. It returns an error if the owner's version is not served,
// which says nothing about the owner.
func (c *Collector) find(ctx context.Context, namespace string,
	reference metav1.OwnerReference) (state deletion, exists, known bool, err error) {
	gv, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil {
		return notDeleted, false, false, err
	}
	gone := c.graph.lastOf(reference.UID)
	mapping, err := c.kinds.RESTMapping(gv.WithKind(reference.Kind).GroupKind(), gv.Version)
	if err != nil { // the kind may be new, or may have gone with the owner
		resource := c.resourceOf(gv.WithKind(reference.Kind), gone)
		if gone.is(resource, namespace, reference.Name) || gone.is(resource, "", reference.Name) {
			return notDeleted, false, true, nil
		}
		c.rediscover()
		return notDeleted, false, false, err
	}
	in := namespace
	switch namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; {
	case namespaced && namespace == "":
		return notDeleted, false, false, errNamespacedOwner
	case !namespaced:
		in = ""
	}
	resource := mapping.Resource.GroupResource()
	if gone.is(resource, in, reference.Name) {
		return notDeleted, false, true, nil
	}
	if owner := c.graph.get(reference.UID); owner.is(resource, in, reference.Name) {
		return owner.deleting, true, true, nil
	}
	owner, err := c.metadata.Resource(mapping.Resource).Namespace(in).Get(ctx, reference.Name, metav1.GetOptions{})
	switch {
	case isGone(err):
		return notDeleted, false, true, nil
	case apierrors.IsNotFound(err): // the version is served no longer
		c.rediscover()
		return notDeleted, false, false, err
	case err != nil:
		return notDeleted, false, false, err
	}
	exists = owner.UID == reference.UID
	return deletionOf(owner), exists, !exists, nil
}

// resourceOf returns the resource of a kind that is not served: that of an owner that was deleted, if it is of the
// group and is not followed any more either, or one that follows from the kind's name.
func (c *Collector) resourceOf(kind schema.GroupVersionKind, gone *node) schema.GroupResource {
	if gone != nil && gone.resource.Group == kind.Group && !c.Follows(gone.resource) {
		return gone.resource
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind)
	return guess.GroupResource()
}

// rediscover makes the next owner cause a request of discovery.
func (c *Collector) rediscover() {
	if time.Since(c.discovered) > rediscovery {
		c.kinds.Reset()
		c.discovered = time.Now()
	}
}

// isGone reports whether a server that serves the resource has no such object. The response to a request of a resource
// that is not served has the status 404, too, but no Status object.
func isGone(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}
