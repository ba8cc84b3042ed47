package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ordered is a StatefulSet with its pods and revisions.
type ordered struct {
	*appsv1.StatefulSet
	owner           owner
	pods            map[int]*corev1.Pod // by ordinal
	current, update *appsv1.ControllerRevision
	first, end      int // the ordinals are first to end-1
	partition       int
}

// order does the next step of a StatefulSet: pods are created, deleted and replaced in the order of their ordinals.
func (c *Cluster) order(ctx context.Context, namespace, name string) (time.Time, error) {
	set, err := c.statefulSetsOf.StatefulSets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	selector, ok := valid(set.Spec.Selector)
	if !ok || !selects(set.Spec.Selector, &set.Spec.Template.ObjectMeta) {
		return time.Time{}, nil
	}
	o := owner{set, statefulSetKind, selector, func(ctx context.Context) (metav1.Object, error) {
		return c.client.AppsV1().StatefulSets(namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	if _, err := c.podsFor(ctx, o); err != nil || set.DeletionTimestamp != nil {
		return time.Time{}, err
	}
	update, others, err := c.revise(ctx, o, &set.Spec.Template, set.Status.CollisionCount)
	if err != nil {
		return time.Time{}, err
	}
	s := &ordered{StatefulSet: set, owner: o, current: update, update: update}
	if i := slices.IndexFunc(others, func(r *appsv1.ControllerRevision) bool {
		return r.Name == set.Status.CurrentRevision
	}); i >= 0 {
		s.current = others[i]
	}
	if set.Spec.Ordinals != nil {
		s.first = int(max(set.Spec.Ordinals.Start, 0))
	}
	s.end = s.first + int(number(set.Spec.Replicas))
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil {
		s.partition = int(max(*rolling.Partition, 0))
	}
	s.pods = s.byOrdinal(c.podsNow(set))
	due, failed := c.stepStatefulSet(ctx, s)
	s.pods = s.byOrdinal(c.podsNow(set))
	status, next := s.status(c.clock.Now())
	if !equality.Semantic.DeepEqual(*status, set.Status) {
		changed := set.DeepCopy()
		changed.Status = *status
		if changed, err = c.client.AppsV1().StatefulSets(namespace).UpdateStatus(ctx, changed,
			metav1.UpdateOptions{}); err == nil {
			c.statefulSets.await(ctx, changed)
		}
	}
	if err == nil && failed == nil {
		err = c.forgetRevisions(ctx, others, set.Spec.RevisionHistoryLimit, c.podsNow(set), status.CurrentRevision)
	}
	if failed != nil {
		err = failed
	}
	return earlier(due, next), err
}

// byOrdinal returns pods by their ordinals. Those whose names have none are left out.
func (s *ordered) byOrdinal(pods []*corev1.Pod) map[int]*corev1.Pod {
	all := map[int]*corev1.Pod{}
	for _, pod := range pods {
		ordinal, found := strings.CutPrefix(pod.Name, s.Name+"-")
		if n, err := strconv.Atoi(ordinal); found && err == nil && n >= 0 && strconv.Itoa(n) == ordinal {
			all[n] = pod
		}
	}
	return all
}

// stepStatefulSet creates or deletes pods until one must be waited for, or a burst is done.
func (c *Cluster) stepStatefulSet(ctx context.Context, s *ordered) (due time.Time, err error) {
	parallel := s.Spec.PodManagementPolicy == appsv1.ParallelPodManagement
	now, done := c.clock.Now(), 0
	for ordinal := s.first; ordinal < s.end; ordinal++ {
		pod := s.pods[ordinal]
		switch {
		case done == burst:
			return c.clock.Now(), nil
		case pod == nil:
			if err := c.createOrdinal(ctx, s, ordinal); err != nil {
				return time.Time{}, err
			}
			done++
		case ended(pod) && pod.DeletionTimestamp == nil: // replaced when it is gone
			if err := c.deletePod(ctx, pod); err != nil {
				return time.Time{}, err
			}
			done++
		}
		if parallel {
			continue
		}
		if pod == nil || pod.DeletionTimestamp != nil {
			return time.Time{}, nil
		}
		if available, at := isAvailable(pod, s.Spec.MinReadySeconds, now); !available {
			return at, nil
		}
	}
	for _, ordinal := range slices.Backward(slices.Sorted(maps.Keys(s.pods))) {
		pod := s.pods[ordinal]
		if ordinal >= s.first && ordinal < s.end {
			continue
		}
		if done == burst {
			return c.clock.Now(), nil
		}
		if pod.DeletionTimestamp == nil {
			if err := c.deletePod(ctx, pod); err != nil {
				return time.Time{}, err
			}
			done++
		}
		if !parallel {
			return time.Time{}, nil
		}
	}
	return c.updateOrdinals(ctx, s, now)
}

// updateOrdinals deletes the last pod of an earlier revision, unless a later pod must be waited for.
func (c *Cluster) updateOrdinals(ctx context.Context, s *ordered, now time.Time) (time.Time, error) {
	if s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return time.Time{}, nil
	}
	for ordinal := s.end - 1; ordinal >= max(s.first, s.partition); ordinal-- {
		pod := s.pods[ordinal]
		if pod == nil || pod.DeletionTimestamp != nil {
			return time.Time{}, nil
		}
		if !hasRevision(pod, s.update) {
			return time.Time{}, c.deletePod(ctx, pod)
		}
		if available, at := isAvailable(pod, s.Spec.MinReadySeconds, now); !available {
			return at, nil
		}
	}
	return time.Time{}, nil
}

// createOrdinal creates a pod, and before it the claims that it needs. Pods below the partition are of the current
// revision.
func (c *Cluster) createOrdinal(ctx context.Context, s *ordered, ordinal int) error {
	revision := s.update
	if ordinal < s.partition {
		revision = s.current
	}
	template, err := templateOf(revision)
	if err != nil {
		return err
	}
	pod := newPod(template, s.owner)
	pod.GenerateName, pod.Name = "", fmt.Sprintf("%s-%d", s.Name, ordinal)
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.Spec.ServiceName
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.StatefulSetPodNameLabel, pod.Name)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.PodIndexLabel, strconv.Itoa(ordinal))
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey, revision.Name)
	for _, claim := range s.Spec.VolumeClaimTemplates {
		name := claim.Name + "-" + pod.Name
		if err := c.createClaim(ctx, s, claim, name); err != nil {
			return err
		}
		pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == claim.Name })
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	return c.createPod(ctx, pod)
}

// createClaim creates a claim of a template, unless it exists: it outlives its pod.
func (c *Cluster) createClaim(ctx context.Context, s *ordered, template corev1.PersistentVolumeClaim,
	name string) error {
	if _, err := c.claimsOf.PersistentVolumeClaims(s.Namespace).Get(name); !apierrors.IsNotFound(err) {
		return err
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations)},
		Spec: template.Spec,
	}
	for key, value := range s.Spec.Selector.MatchLabels {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
	}
	created, err := c.client.CoreV1().PersistentVolumeClaims(s.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		c.claims.await(ctx, created)
	}
	return err
}

// status returns the status of the StatefulSet, and when it changes if no pod does.
func (s *ordered) status(now time.Time) (*appsv1.StatefulSetStatus, time.Time) {
	status := s.Status.DeepCopy()
	status.ObservedGeneration = s.Generation
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas, status.CurrentReplicas, status.UpdatedReplicas = 0, 0,
		0, 0, 0
	status.CurrentRevision, status.UpdateRevision = s.current.Name, s.update.Name
	var due time.Time
	for _, pod := range s.pods {
		if !ended(pod) {
			status.Replicas++
		}
		if isReady(pod) {
			status.ReadyReplicas++
		}
		available, at := isAvailable(pod, s.Spec.MinReadySeconds, now)
		if available {
			status.AvailableReplicas++
		}
		due = earlier(due, at)
		if pod.DeletionTimestamp == nil && hasRevision(pod, s.current) {
			status.CurrentReplicas++
		}
		if pod.DeletionTimestamp == nil && hasRevision(pod, s.update) {
			status.UpdatedReplicas++
		}
	}
	if status.UpdatedReplicas == status.Replicas && status.ReadyReplicas == status.Replicas &&
		int(status.Replicas) == s.end-s.first {
		status.CurrentRevision, status.CurrentReplicas = status.UpdateRevision, status.UpdatedReplicas
	}
	return status, due
}
