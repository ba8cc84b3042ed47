package simulation

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// replicate creates and deletes the pods of a ReplicaSet, and counts them in its status.
func (c *Cluster) replicate(ctx context.Context, namespace, name string) (time.Time, error) {
	set, err := c.replicaSetsOf.ReplicaSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	selector, ok := valid(set.Spec.Selector)
	if !ok || !selector.Matches(labels.Set(set.Spec.Template.Labels)) { // its pods would never be its own
		return time.Time{}, nil
	}
	o := owner{set, replicaSetKind, selector, func(ctx context.Context) (metav1.Object, error) {
		return c.client.AppsV1().ReplicaSets(namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	pods, err := c.podsFor(ctx, o)
	if err != nil {
		return time.Time{}, err
	}
	var due time.Time
	var failed error
	if set.DeletionTimestamp == nil {
		left := false
		left, failed = c.scaleSet(ctx, set, o, active(pods))
		if left {
			due = c.clock.Now()
		}
		pods = c.podsNow(set)
	}
	status, next := setStatus(set, active(pods), failed, c.clock.Now())
	if !equality.Semantic.DeepEqual(*status, set.Status) {
		changed := set.DeepCopy()
		changed.Status = *status
		if changed, err = c.client.AppsV1().ReplicaSets(namespace).UpdateStatus(ctx, changed,
			metav1.UpdateOptions{}); err == nil {
			c.replicaSets.await(ctx, changed)
		}
	}
	return earlier(due, next), errors.Join(failed, err)
}

// podsNow returns the pods of a controller in the cache.
func (c *Cluster) podsNow(of metav1.Object) []*corev1.Pod {
	found := c.indexed(c.pods, byController, string(of.GetUID()))
	pods := make([]*corev1.Pod, len(found))
	for i, pod := range found {
		pods[i] = pod.(*corev1.Pod)
	}
	return pods
}

// scaleSet creates or deletes pods, as many as a burst, and reports whether some are left. It ends at the first pod
// that is refused.
func (c *Cluster) scaleSet(ctx context.Context, set *appsv1.ReplicaSet, o owner,
	pods []*corev1.Pod) (left bool, err error) {
	missing := int(number(set.Spec.Replicas)) - len(pods)
	if missing < 0 {
		deletionOrder(pods)
		return c.deletePods(ctx, pods[:-missing])
	}
	for range min(missing, burst) {
		if err := c.createPod(ctx, newPod(&set.Spec.Template, o)); err != nil {
			return false, err
		}
	}
	return missing > burst, nil
}

// number returns a wanted number; absent is 1. A negative one, which no validation refuses here, is none.
func number(n *int32) int32 {
	if n == nil {
		return 1
	}
	return max(*n, 0)
}

// setStatus returns the status of a ReplicaSet with pods, and when it changes if no pod does.
func setStatus(set *appsv1.ReplicaSet, pods []*corev1.Pod, failed error,
	now time.Time) (*appsv1.ReplicaSetStatus, time.Time) {
	status := set.Status.DeepCopy()
	template := labels.Set(set.Spec.Template.Labels).AsSelectorPreValidated()
	status.ObservedGeneration = set.Generation
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = int32(len(pods)), 0, 0,
		0
	var due time.Time
	for _, pod := range pods {
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if isReady(pod) {
			status.ReadyReplicas++
		}
		available, at := isAvailable(pod, set.Spec.MinReadySeconds, now)
		if available {
			status.AvailableReplicas++
		}
		due = earlier(due, at)
	}
	setFailure(status, failed, now)
	return status, due
}

// setFailure sets or removes the condition that pods could not be created or deleted.
func setFailure(status *appsv1.ReplicaSetStatus, failed error, now time.Time) {
	at := -1
	for i := range status.Conditions {
		if status.Conditions[i].Type == appsv1.ReplicaSetReplicaFailure {
			at = i
		}
	}
	switch {
	case failed == nil && at >= 0:
		status.Conditions = append(status.Conditions[:at], status.Conditions[at+1:]...)
	case failed != nil && at < 0:
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
			Reason: "FailedCreate", Message: failed.Error(),
		})
	}
}
