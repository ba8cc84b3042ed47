package garbage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

var errUnknownOwner = errors.New("an owner exists that is not known to the collector")

// collect deletes an object without an owner that exists, and otherwise removes the references to owners that are
// gone or wait for its deletion. It sends no request for an object whose owners are all known to exist. It returns
// errUnknownOwner for one that has to be checked again, since nothing will report the deletion of an owner.
func (c *Collector) collect(ctx context.Context, n *node) error {
	if len(n.owners) == 0 {
		return nil
	}
	all, err := c.classify(ctx, n.namespace, n.owners)
	switch {
	case err != nil:
		return err
	case len(all.solid) == len(n.owners) && all.unknown:
		return errUnknownOwner
	case len(all.solid) == len(n.owners):
		return nil
	}
	latest, err := c.latest(ctx, n)
	if latest == nil || err != nil || latest.DeletionTimestamp != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(latest.OwnerReferences, n.owners) {
		if all, err = c.classify(ctx, n.namespace, latest.OwnerReferences); err != nil {
			return err
		}
	}
	dependents := c.graph.dependentsOf(n.uid)
	switch {
	case len(all.solid) == len(latest.OwnerReferences): // also if there is none any more
		return nil
	case len(all.solid) > 0:
		return c.patch(ctx, n, latest, map[string]any{"ownerReferences": all.solid})
	case len(all.waiting) > 0 && len(dependents) > 0:
		return c.deleteInForeground(ctx, n, latest, dependents)
	}
	return c.delete(ctx, n, latest, ownPropagation(latest))
}

// deleteInForeground deletes an object, for whose deletion owners wait, with its dependents before it. Owners that are
// its dependents, too, no longer wait for it: they would wait for each other.
func (c *Collector) deleteInForeground(
	ctx context.Context, n *node, latest *metav1.PartialObjectMetadata, dependents []*node,
) error {
	if slices.ContainsFunc(dependents, func(d *node) bool { return d.deleting == inForeground }) {
		unblocked := slices.Clone(latest.OwnerReferences)
		changed := false
		for i := range unblocked {
			changed = changed || unblocked[i].BlockOwnerDeletion != nil && *unblocked[i].BlockOwnerDeletion
			unblocked[i].BlockOwnerDeletion = new(bool)
		}
		if changed {
			return c.patch(ctx, n, latest, map[string]any{"ownerReferences": unblocked}) // the change enqueues it again
		}
	}
	return c.delete(ctx, n, latest, metav1.DeletePropagationForeground)
}

// ownPropagation returns the propagation that an object's finalizers ask for; background without.
func ownPropagation(object metav1.Object) metav1.DeletionPropagation {
	switch {
	case slices.Contains(object.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}

// deleteDependents deletes the dependents of an owner that is deleted in the foreground, and lets it go when none
// blocks.
func (c *Collector) deleteDependents(ctx context.Context, owner *node) error {
	dependents := c.graph.dependentsOf(owner.uid)
	if !slices.ContainsFunc(dependents, func(d *node) bool { return d.blocks(owner.uid) }) {
		return c.removeFinalizer(ctx, owner, metav1.FinalizerDeleteDependents)
	}
	for _, dependent := range dependents {
		if dependent.deleting == notDeleted {
			c.worker.Add(dependent.uid)
		}
	}
	return nil
}

// orphan removes the references to an owner from its dependents, and lets it go.
func (c *Collector) orphan(ctx context.Context, owner *node) error {
	for _, dependent := range c.graph.dependentsOf(owner.uid) {
		latest, err := c.latest(ctx, dependent)
		if err != nil {
			return err
		}
		if latest == nil {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(latest.OwnerReferences), func(o metav1.OwnerReference) bool {
			return o.UID == owner.uid
		})
		if len(others) == len(latest.OwnerReferences) {
			continue
		}
		if err := c.patch(ctx, dependent, latest, map[string]any{"ownerReferences": others}); err != nil {
			return err
		}
	}
	return c.removeFinalizer(ctx, owner, metav1.FinalizerOrphanDependents)
}

func (c *Collector) removeFinalizer(ctx context.Context, n *node, finalizer string) error {
	latest, err := c.latest(ctx, n)
	if latest == nil || err != nil || !slices.Contains(latest.Finalizers, finalizer) {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(latest.Finalizers), func(f string) bool { return f == finalizer })
	return c.patch(ctx, n, latest, map[string]any{"finalizers": others})
}

// objects returns the client of an object's resource, in a version that is served, which the stored one need not be.
func (c *Collector) objects(n *node) (metadata.ResourceInterface, error) {
	found, err := c.kinds.ResourcesFor(n.resource.WithVersion(""))
	i := slices.IndexFunc(found, func(served schema.GroupVersionResource) bool {
		return served.GroupResource() == n.resource
	})
	if i < 0 { // it also finds groups that begin with the group's name
		c.rediscover()
		return nil, cmp.Or(err, error(&meta.NoResourceMatchError{PartialResource: n.resource.WithVersion("")}))
	}
	return c.metadata.Resource(found[i]).Namespace(n.namespace), nil
}

// latest reads an object. It returns nil if the object is gone.
func (c *Collector) latest(ctx context.Context, n *node) (*metav1.PartialObjectMetadata, error) {
	objects, err := c.objects(n)
	if err != nil {
		return nil, err
	}
	latest, err := objects.Get(ctx, n.name, metav1.GetOptions{})
	switch {
	case isGone(err) || err == nil && latest.UID != n.uid:
		return nil, nil
	case apierrors.IsNotFound(err): // the version is served no longer
		c.rediscover()
	}
	return latest, err
}

// patch replaces fields of the metadata of an object, unless it changed since it was read.
func (c *Collector) patch(
	ctx context.Context, n *node, latest *metav1.PartialObjectMetadata, fields map[string]any,
) error {
	fields["uid"], fields["resourceVersion"] = latest.UID, latest.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	objects, err := c.objects(n)
	if err != nil {
		return err
	}
	_, err = objects.Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{})
	return unlessGone(err)
}

// delete deletes an object, unless it changed since it was read.
func (c *Collector) delete(
	ctx context.Context, n *node, latest *metav1.PartialObjectMetadata, propagation metav1.DeletionPropagation,
) error {
	objects, err := c.objects(n)
	if err != nil {
		return err
	}
	return unlessGone(objects.Delete(ctx, n.name, metav1.DeleteOptions{
		PropagationPolicy: &propagation,
		Preconditions:     &metav1.Preconditions{UID: &latest.UID, ResourceVersion: &latest.ResourceVersion},
	}))
}

func unlessGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}
