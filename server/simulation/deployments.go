package simulation

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The annotations of ReplicaSets of Deployments.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maxAnnotation      = "deployment.kubernetes.io/max-replicas"
)

// deploy creates and scales the ReplicaSets of a Deployment, and reports its progress.
func (c *Cluster) deploy(ctx context.Context, namespace, name string) (time.Time, error) {
	d, err := c.deploymentsOf.Deployments(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	selector, ok := valid(d.Spec.Selector)
	if !ok || !selects(d.Spec.Selector, &d.Spec.Template.ObjectMeta) {
		return time.Time{}, nil
	}
	o := owner{d, deploymentKind, selector, func(ctx context.Context) (metav1.Object, error) {
		return c.client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	sets, err := c.setsFor(ctx, o)
	if err != nil {
		return time.Time{}, err
	}
	r := newRollout(d, sets)
	if d.DeletionTimestamp == nil {
		if r, err = c.roll(ctx, r, o); err != nil {
			return time.Time{}, err
		}
	}
	status, due := r.status(c.clock.Now())
	if equality.Semantic.DeepEqual(*status, d.Status) {
		return due, nil
	}
	changed := r.deployment.DeepCopy()
	changed.Status = *status
	if changed, err = c.client.AppsV1().Deployments(namespace).UpdateStatus(ctx, changed,
		metav1.UpdateOptions{}); err == nil {
		c.deployments.await(ctx, changed)
	}
	return due, err
}

// setsFor returns the ReplicaSets of a Deployment, the oldest first.
func (c *Cluster) setsFor(ctx context.Context, o owner) ([]*appsv1.ReplicaSet, error) {
	found, err := c.claimed(ctx, c.replicaSets, o, func(name string, patch []byte) (metav1.Object, error) {
		return c.client.AppsV1().ReplicaSets(o.GetNamespace()).Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{})
	})
	sets := make([]*appsv1.ReplicaSet, len(found))
	for i, set := range found {
		sets[i] = set.(*appsv1.ReplicaSet)
	}
	slices.SortStableFunc(sets, func(a, b *appsv1.ReplicaSet) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return sets, err
}

// roll does the next step of a rollout, and returns the rollout after it.
func (c *Cluster) roll(ctx context.Context, r *rollout, o owner) (*rollout, error) {
	paused := r.deployment.Spec.Paused
	if r.current == nil && !paused {
		if err := c.createSet(ctx, r, o); err != nil {
			return r, err
		}
	}
	if !paused {
		if err := c.number(ctx, r); err != nil {
			return r, err
		}
	}
	for _, scale := range r.scales(c.podsNow) {
		if err := c.scaleReplicaSet(ctx, r, scale.set, scale.to); err != nil {
			return r, err
		}
	}
	if paused || !r.complete(c.podsNow) {
		return r, nil
	}
	for _, set := range r.surplus() {
		err := c.client.AppsV1().ReplicaSets(set.Namespace).Delete(ctx, set.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(set.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return r, err
		}
		c.replicaSets.awaitDeletion(ctx, set)
	}
	return r, nil
}

// createSet creates the ReplicaSet of a Deployment's template.
func (c *Cluster) createSet(ctx context.Context, r *rollout, o owner) error {
	d := r.deployment
	encoded, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return err
	}
	hash := hashOf(encoded, d.Status.CollisionCount)
	template := d.Spec.Template.DeepCopy()
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	selector := d.Spec.Selector.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	none := int32(0)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: maps.Clone(template.Labels),
			Annotations: r.annotations(nil, r.lastRevision()+1), OwnerReferences: []metav1.OwnerReference{o.reference()},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &none, MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector,
			Template: *template},
	}
	created, err := c.client.AppsV1().ReplicaSets(d.Namespace).Create(ctx, set, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // another template has the hash, or another owner the name
		count := int32(1)
		if d.Status.CollisionCount != nil {
			count += *d.Status.CollisionCount
		}
		changed := d.DeepCopy()
		changed.Status.CollisionCount = &count
		if changed, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, changed,
			metav1.UpdateOptions{}); err == nil {
			c.deployments.await(ctx, changed)
		}
	}
	if err != nil {
		return err
	}
	c.replicaSets.await(ctx, created)
	r.sets, r.current, r.created = append(r.sets, created), created, true
	return nil
}

// number writes the revision of a rollout to its ReplicaSet and to the Deployment. A template that was used before gets
// a new number.
func (c *Cluster) number(ctx context.Context, r *rollout) error {
	set, d := r.current, r.deployment
	revision := r.lastRevision() + 1
	if own := revisionOf(set); own > revision {
		revision = own
	}
	if want := r.annotations(set.Annotations, revision); !maps.Equal(want, set.Annotations) ||
		set.Spec.MinReadySeconds != d.Spec.MinReadySeconds {
		changed := set.DeepCopy()
		changed.Annotations, changed.Spec.MinReadySeconds = want, d.Spec.MinReadySeconds
		if err := c.updateSet(ctx, r, changed); err != nil {
			return err
		}
	}
	if d.Annotations[revisionAnnotation] == strconv.FormatInt(revision, 10) {
		return nil
	}
	changed := d.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, revisionAnnotation, strconv.FormatInt(revision, 10))
	changed, err := c.client.AppsV1().Deployments(d.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	c.deployments.await(ctx, changed)
	r.deployment = changed
	return nil
}

func (c *Cluster) scaleReplicaSet(ctx context.Context, r *rollout, set *appsv1.ReplicaSet, to int32) error {
	changed := set.DeepCopy()
	changed.Spec.Replicas = &to
	changed.Annotations = r.sized(maps.Clone(set.Annotations))
	return c.updateSet(ctx, r, changed)
}

// updateSet writes a ReplicaSet, and puts it into the rollout.
func (c *Cluster) updateSet(ctx context.Context, r *rollout, set *appsv1.ReplicaSet) error {
	updated, err := c.client.AppsV1().ReplicaSets(set.Namespace).Update(ctx, set, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	c.replicaSets.await(ctx, updated)
	r.replace(updated)
	return nil
}

// revisionOf returns the revision of a ReplicaSet; zero without one.
func revisionOf(set *appsv1.ReplicaSet) int64 {
	n, _ := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
	return n
}

// notCopied are annotations of a Deployment that its ReplicaSets do not have.
var notCopied = []string{corev1.LastAppliedConfigAnnotation, revisionAnnotation, desiredAnnotation, maxAnnotation}

// annotations returns those of the current ReplicaSet: its own, those of the Deployment, and its revision.
func (r *rollout) annotations(own map[string]string, revision int64) map[string]string {
	all := maps.Clone(own)
	if all == nil {
		all = map[string]string{}
	}
	for key, value := range r.deployment.Annotations {
		if !slices.Contains(notCopied, key) {
			all[key] = value
		}
	}
	all[revisionAnnotation] = strconv.FormatInt(revision, 10)
	return r.sized(all)
}

// sized sets the annotations with the size of the Deployment.
func (r *rollout) sized(annotations map[string]string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[desiredAnnotation] = strconv.Itoa(int(r.desired))
	annotations[maxAnnotation] = strconv.Itoa(int(r.desired + r.surge))
	return annotations
}
