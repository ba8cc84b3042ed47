package simulation

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// burst is how many pods a controller creates or deletes before other objects of its kind have their turn.
const burst = 50

// newPod returns a pod of a template, with an owner.
func newPod(template *corev1.PodTemplateSpec, o owner) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), GenerateName: o.GetName() + "-",
			Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
			Finalizers:      slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{o.reference()},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// createPod creates a pod, and waits until the cache has it.
func (c *Cluster) createPod(ctx context.Context, pod *corev1.Pod) error {
	created, err := c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	c.pods.await(ctx, created)
	return nil
}

// deletePod deletes a pod, and waits until the cache knows.
func (c *Cluster) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return c.deletePodAfter(ctx, pod, nil)
}

// deletePodAfter is deletePod with a grace period in seconds; nil is the pod's own.
func (c *Cluster) deletePodAfter(ctx context.Context, pod *corev1.Pod, grace *int64) error {
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	c.pods.awaitDeletion(ctx, pod)
	return nil
}

// deletePods deletes pods, as many as a burst, and reports whether some are left. One that is not deleted does not keep
// others.
func (c *Cluster) deletePods(ctx context.Context, pods []*corev1.Pod) (left bool, err error) {
	for i, pod := range pods {
		if i == burst {
			return true, err
		}
		err = errors.Join(err, c.deletePod(ctx, pod))
	}
	return false, err
}

// active returns the pods that have neither ended nor are being deleted.
func active(pods []*corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil ||
			ended(p)
	})
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func conditionOf(status *corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

func isReady(p *corev1.Pod) bool {
	ready := conditionOf(&p.Status, corev1.PodReady)
	return p.Status.Phase == corev1.PodRunning && ready != nil && ready.Status == corev1.ConditionTrue
}

// availableSince returns when a ready pod is available; zero if it is not ready.
func availableSince(p *corev1.Pod, minReadySeconds int32) time.Time {
	if !isReady(p) {
		return time.Time{}
	}
	return conditionOf(&p.Status, corev1.PodReady).LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second)
}

// isAvailable reports whether a pod is available, and otherwise when it will be if nothing changes.
func isAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) (bool, time.Time) {
	since := availableSince(p, minReadySeconds)
	if since.IsZero() || since.After(now) {
		return false, since
	}
	return true, time.Time{}
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// deletionOrder sorts pods so that those that are deleted first come first: unassigned, not running, not ready, cheap,
// and then the newest.
func deletionOrder(pods []*corev1.Pod) {
	rank := func(p *corev1.Pod) int {
		switch {
		case p.Spec.NodeName == "":
			return 0
		case p.Status.Phase != corev1.PodRunning:
			return 1
		case !isReady(p):
			return 2
		}
		return 3
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		if d := deletionCost(a) - deletionCost(b); d != 0 {
			return d
		}
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
}

func deletionCost(p *corev1.Pod) int {
	cost, _ := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32) // of an invalid one, zero
	return int(cost)
}

// hashOf returns a short name of some contents, valid in names and labels. salt distinguishes contents of one hash.
func hashOf(encoded []byte, salt *int32) string {
	hash := fnv.New32a()
	_, _ = hash.Write(encoded)
	if salt != nil {
		_, _ = hash.Write([]byte(strconv.Itoa(int(*salt))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}
