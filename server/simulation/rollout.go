package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rollout is a Deployment with its ReplicaSets.
type rollout struct {
	deployment *appsv1.Deployment
	sets       []*appsv1.ReplicaSet // the oldest first
	current    *appsv1.ReplicaSet   // of the template; nil if there is none
	created    bool                 // current was created in this step
	// desired is the wanted number of pods; surge how many more there may be, unavailable how many of them may be missing.
	desired, surge, unavailable int32
}

func newRollout(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) *rollout {
	r := &rollout{deployment: d, sets: sets, desired: number(d.Spec.Replicas)}
	if i := slices.IndexFunc(sets, func(set *appsv1.ReplicaSet) bool {
		return sameTemplate(&set.Spec.Template, &d.Spec.Template)
	}); i >= 0 {
		r.current = sets[i]
	}
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil &&
		d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		r.surge, r.unavailable = part(rolling.MaxSurge, r.desired, true), min(part(rolling.MaxUnavailable, r.desired, false),
			r.desired)
		if r.surge == 0 && r.unavailable == 0 {
			r.unavailable = 1
		}
	}
	return r
}

// part returns a number or a percentage of a number; zero for an invalid one.
func part(of *intstr.IntOrString, whole int32, up bool) int32 {
	if of == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(of, int(whole), up)
	if err != nil {
		return 0
	}
	return int32(max(n, 0))
}

// sameTemplate compares templates without the label of their hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	plain := func(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
		copied := *t
		copied.Labels = maps.Clone(t.Labels)
		delete(copied.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		return &copied
	}
	return equality.Semantic.DeepEqual(plain(a), plain(b))
}

// replace puts a ReplicaSet that was written in the place of the one before.
func (r *rollout) replace(set *appsv1.ReplicaSet) {
	r.sets = slices.Clone(r.sets)
	for i := range r.sets {
		if r.sets[i].UID == set.UID {
			r.sets[i] = set
		}
	}
	if r.current != nil && r.current.UID == set.UID {
		r.current = set
	}
}

// old returns the ReplicaSets of other templates.
func (r *rollout) old() []*appsv1.ReplicaSet {
	return slices.DeleteFunc(slices.Clone(r.sets), func(set *appsv1.ReplicaSet) bool {
		return r.current != nil &&
			set.UID == r.current.UID
	})
}

// lastRevision returns the newest revision of another template.
func (r *rollout) lastRevision() (last int64) {
	for _, set := range r.old() {
		last = max(last, revisionOf(set))
	}
	return last
}

// scale is a new size of a ReplicaSet.
type scale struct {
	set *appsv1.ReplicaSet
	to  int32
}

// scales returns the next sizes of the ReplicaSets.
func (r *rollout) scales(podsOf func(metav1.Object) []*corev1.Pod) []scale {
	switch {
	case r.deployment.Spec.Paused || r.current == nil:
		return r.resize()
	case r.deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return r.recreate(podsOf)
	default:
		return r.rolling()
	}
}

// resize gives the newest ReplicaSet with pods what the size of a paused Deployment differs from the sum.
func (r *rollout) resize() []scale {
	if len(r.sets) == 0 {
		return nil
	}
	newest := r.sets[len(r.sets)-1]
	sum := int32(0)
	for _, set := range r.sets {
		if sum += number(set.Spec.Replicas); number(set.Spec.Replicas) > 0 {
			newest = set
		}
	}
	if excess := sum - r.desired; excess > r.surge || excess < 0 {
		return []scale{{newest, max(number(newest.Spec.Replicas)-excess, 0)}}
	}
	return nil
}

// recreate scales all old ReplicaSets to none, and the current one when no old pod is left.
func (r *rollout) recreate(podsOf func(metav1.Object) []*corev1.Pod) (scales []scale) {
	left := 0
	for _, set := range r.old() {
		left += len(podsOf(set))
		if number(set.Spec.Replicas) > 0 {
			scales = append(scales, scale{set, 0})
		}
	}
	if len(scales) == 0 && left == 0 && number(r.current.Spec.Replicas) != r.desired {
		scales = append(scales, scale{r.current, r.desired})
	}
	return scales
}

// rolling scales the current ReplicaSet up as far as the surge allows, and then old ones down as far as enough pods
// are available.
func (r *rollout) rolling() []scale {
	sum, available := int32(0), int32(0)
	for _, set := range r.sets {
		sum += number(set.Spec.Replicas)
		available += set.Status.AvailableReplicas
	}
	current := number(r.current.Spec.Replicas)
	switch {
	case current > r.desired:
		return []scale{{r.current, r.desired}}
	case current < r.desired && sum < r.desired+r.surge:
		return []scale{{r.current, min(current+r.desired+r.surge-sum, r.desired)}}
	}
	least := r.desired - r.unavailable
	removable := sum - least - max(current-r.current.Status.AvailableReplicas, 0)
	var scales []scale
	sizes := map[*appsv1.ReplicaSet]int32{}
	take := func(set *appsv1.ReplicaSet, n int32) {
		if n = min(n, sizes[set], removable); n > 0 {
			sizes[set] -= n
			removable -= n
		}
	}
	old := r.old()
	for _, set := range old { // those that are not available first
		sizes[set] = number(set.Spec.Replicas)
		take(set, sizes[set]-set.Status.AvailableReplicas)
	}
	spare := available - least
	for _, set := range old {
		before := sizes[set]
		take(set, spare)
		spare -= before - sizes[set]
	}
	for _, set := range old {
		if sizes[set] != number(set.Spec.Replicas) {
			scales = append(scales, scale{set, sizes[set]})
		}
	}
	return scales
}

// complete reports whether all pods are of the current template and available.
func (r *rollout) complete(podsOf func(metav1.Object) []*corev1.Pod) bool {
	if r.current == nil || r.current.Status.ObservedGeneration < r.current.Generation ||
		r.current.Status.AvailableReplicas != r.desired || r.current.Status.Replicas != r.desired {
		return false
	}
	return !slices.ContainsFunc(r.old(), func(set *appsv1.ReplicaSet) bool {
		return number(set.Spec.Replicas) > 0 ||
			len(podsOf(set)) > 0
	})
}

// surplus returns the oldest ReplicaSets without pods beyond the limit of the history.
func (r *rollout) surplus() []*appsv1.ReplicaSet {
	limit := r.deployment.Spec.RevisionHistoryLimit
	if limit == nil {
		return nil
	}
	old := slices.DeleteFunc(r.old(), func(set *appsv1.ReplicaSet) bool {
		return set.DeletionTimestamp != nil || number(set.Spec.Replicas) > 0 || set.Status.Replicas > 0 ||
			set.Status.ObservedGeneration < set.Generation
	})
	slices.SortStableFunc(old, func(a, b *appsv1.ReplicaSet) int { return int(revisionOf(a) - revisionOf(b)) })
	return old[:max(len(old)-int(max(*limit, 0)), 0)]
}

// status returns the status of the Deployment, and when it changes if no ReplicaSet does.
func (r *rollout) status(now time.Time) (*appsv1.DeploymentStatus, time.Time) {
	before := &r.deployment.Status
	status := before.DeepCopy()
	status.ObservedGeneration = r.deployment.Generation
	status.Replicas, status.UpdatedReplicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0, 0
	for _, set := range r.sets {
		status.Replicas += set.Status.Replicas
		status.ReadyReplicas += set.Status.ReadyReplicas
		status.AvailableReplicas += set.Status.AvailableReplicas
	}
	if r.current != nil {
		status.UpdatedReplicas = r.current.Status.Replicas
	}
	sum := int32(0)
	for _, set := range r.sets {
		sum += number(set.Spec.Replicas)
	}
	status.UnavailableReplicas = max(sum-status.AvailableReplicas, 0)
	if status.AvailableReplicas >= r.desired-r.unavailable {
		setProgress(status, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.", now)
	} else {
		setProgress(status, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability.", now)
	}
	due := r.setProgressing(status, before, now)
	r.setReplicaFailure(status, now)
	return status, due
}

const (
	setCreated       = "NewReplicaSetCreated"
	setUpdated       = "ReplicaSetUpdated"
	setAvailable     = "NewReplicaSetAvailable"
	deadlineExceeded = "ProgressDeadlineExceeded"
)

// setProgressing sets the condition Progressing, and returns when the rollout would exceed its deadline.
func (r *rollout) setProgressing(status, before *appsv1.DeploymentStatus, now time.Time) time.Time {
	name := r.deployment.Name
	if r.current != nil {
		name = r.current.Name
	}
	condition := progressOf(status, appsv1.DeploymentProgressing)
	done := status.UpdatedReplicas == r.desired && status.Replicas == r.desired && status.AvailableReplicas == r.desired &&
		r.current != nil &&
		r.current.Status.ObservedGeneration >= r.current.Generation
	progressed := status.UpdatedReplicas > before.UpdatedReplicas || status.ReadyReplicas > before.ReadyReplicas ||
		status.AvailableReplicas > before.AvailableReplicas ||
		status.Replicas-status.UpdatedReplicas < before.Replicas-before.UpdatedReplicas
	switch {
	case r.deployment.Spec.Paused:
		setProgress(status, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused",
			now)
		return time.Time{}
	case done:
		setProgress(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, setAvailable,
			fmt.Sprintf("ReplicaSet %q has successfully progressed.", name), now)
		return time.Time{}
	case r.created || condition == nil:
		setProgress(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, setCreated,
			fmt.Sprintf("Created new replica set %q", name), now)
	case progressed || condition.Reason == "DeploymentPaused" || condition.Reason == setAvailable &&
		status.UpdatedReplicas < r.desired:
		setProgress(status, appsv1.DeploymentProgressing, corev1.ConditionTrue, setUpdated,
			fmt.Sprintf("ReplicaSet %q is progressing.", name), now)
		progressOf(status, appsv1.DeploymentProgressing).LastUpdateTime = metav1.NewTime(now)
	}
	condition = progressOf(status, appsv1.DeploymentProgressing)
	if r.deployment.Spec.ProgressDeadlineSeconds == nil || condition.Status != corev1.ConditionTrue ||
		condition.Reason == setAvailable {
		return time.Time{}
	}
	due := condition.LastUpdateTime.Add(time.Duration(*r.deployment.Spec.ProgressDeadlineSeconds) * time.Second)
	if due.After(now) {
		return due
	}
	setProgress(status, appsv1.DeploymentProgressing, corev1.ConditionFalse, deadlineExceeded,
		fmt.Sprintf("ReplicaSet %q has timed out progressing.", name), now)
	return time.Time{}
}

// setReplicaFailure copies the condition of a ReplicaSet whose pods are refused.
func (r *rollout) setReplicaFailure(status *appsv1.DeploymentStatus, now time.Time) {
	for _, set := range r.sets {
		for _, failure := range set.Status.Conditions {
			if failure.Type == appsv1.ReplicaSetReplicaFailure && failure.Status == corev1.ConditionTrue {
				setProgress(status, appsv1.DeploymentReplicaFailure, failure.Status, failure.Reason, failure.Message, now)
				return
			}
		}
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentReplicaFailure
	})
}

func progressOf(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

// setProgress sets a condition. The same one stays as it is.
func setProgress(status *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, value corev1.ConditionStatus,
	reason, message string, now time.Time) {
	condition := progressOf(status, kind)
	if condition == nil {
		status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{Type: kind})
		condition = &status.Conditions[len(status.Conditions)-1]
	}
	if condition.Status == value && condition.Reason == reason && condition.Message == message {
		return
	}
	if condition.Status != value {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	condition.Status, condition.Reason, condition.Message, condition.LastUpdateTime = value, reason, message,
		metav1.NewTime(now)
}
