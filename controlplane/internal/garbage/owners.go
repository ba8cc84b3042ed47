package garbage

import (
	"context"
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
}

// classify finds out which owners of an object exist.
func (c *Collector) classify(ctx context.Context, namespace string, references []metav1.OwnerReference) (owners, error) {
	var all owners
	for _, reference := range references {
		state, exists, err := c.find(ctx, namespace, reference)
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

// find returns the state of an owner. It asks the server about one that is unknown, or in another namespace than the
// dependent, where no owner counts.
func (c *Collector) find(ctx context.Context, namespace string, reference metav1.OwnerReference) (state deletion, exists bool, err error) {
	if known := c.graph.get(reference.UID); known != nil && (known.namespace == "" || known.namespace == namespace) {
		return known.deleting, true, nil
	}
	gv, err := schema.ParseGroupVersion(reference.APIVersion)
	if err != nil {
		return notDeleted, false, err
	}
	mapping, err := c.kinds.RESTMapping(gv.WithKind(reference.Kind).GroupKind(), gv.Version)
	if err != nil {
		if time.Since(c.discovered) > rediscovery { // the kind may be new
			c.kinds.Reset()
			c.discovered = time.Now()
		}
		return notDeleted, false, err
	}
	in := namespace
	switch namespaced := mapping.Scope.Name() == meta.RESTScopeNameNamespace; {
	case namespaced && namespace == "":
		return notDeleted, true, nil // a reference that cannot be resolved is never gone
	case !namespaced:
		in = ""
	}
	owner, err := c.metadata.Resource(mapping.Resource).Namespace(in).Get(ctx, reference.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return notDeleted, false, nil
	case err != nil:
		return notDeleted, false, err
	}
	return deletionOf(owner), owner.UID == reference.UID, nil
}
