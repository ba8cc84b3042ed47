package simulation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// cover creates and deletes the pods of a DaemonSet, one for each node on which it may run.
func (c *Cluster) cover(ctx context.Context, namespace, name string) (time.Time, error) {
	set, err := c.daemonSetsOf.DaemonSets(namespace).Get(name)
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
	o := owner{set, daemonSetKind, selector, func(ctx context.Context) (metav1.Object, error) {
		return c.client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	}}
	if _, err := c.podsFor(ctx, o); err != nil || set.DeletionTimestamp != nil {
		return time.Time{}, err
	}
	revision, others, err := c.revise(ctx, o, &set.Spec.Template, set.Status.CollisionCount)
	if err != nil {
		return time.Time{}, err
	}
	nodes, err := c.nodesOf.List(labels.Everything())
	if err != nil {
		return time.Time{}, err
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		return !mayRun(daemon(set, o, revision, n.Name), n)
	})
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	due, failed := c.stepDaemonSet(ctx, set, o, revision, nodes)
	pods := c.podsNow(set)
	status, next := daemonStatus(set, revision, nodes, pods, c.clock.Now())
	if !equality.Semantic.DeepEqual(*status, set.Status) {
		changed := set.DeepCopy()
		changed.Status = *status
		if changed, err = c.client.AppsV1().DaemonSets(namespace).UpdateStatus(ctx, changed,
			metav1.UpdateOptions{}); err == nil {
			c.daemonSets.await(ctx, changed)
		}
	}
	if failed == nil && err == nil {
		err = c.forgetRevisions(ctx, others, set.Spec.RevisionHistoryLimit, pods)
	}
	return earlier(due, next), errors.Join(failed, err)
}

// tolerated are the taints of nodes that daemons tolerate.
var tolerated = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// daemon returns a pod of a DaemonSet for a node.
func daemon(set *appsv1.DaemonSet, o owner, revision *appsv1.ControllerRevision, node string) *corev1.Pod {
	pod := newPod(&set.Spec.Template, o)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.ControllerRevisionHashLabelKey,
		revision.Labels[appsv1.ControllerRevisionHashLabelKey])
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, tolerated...)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		term := &(*required).NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField,
			Operator: corev1.NodeSelectorOpIn, Values: []string{node}})
	}
	return pod
}

// nodeFor returns the node that a daemon is on, or is for.
func nodeFor(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil ||
		p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// stepDaemonSet creates missing pods and deletes those that are ended, unwanted, or of an earlier revision, of these as
// many as may be unavailable.
func (c *Cluster) stepDaemonSet(ctx context.Context, set *appsv1.DaemonSet, o owner,
	revision *appsv1.ControllerRevision, nodes []*corev1.Node) (time.Time, error) {
	now := c.clock.Now()
	byNode := map[string]*corev1.Pod{}
	wanted := map[string]bool{}
	for _, n := range nodes {
		wanted[n.Name] = true
	}
	var unwanted []*corev1.Pod
	for _, pod := range c.podsNow(set) {
		node := nodeFor(pod)
		switch {
		case !wanted[node] || byNode[node] != nil || ended(pod):
			if pod.DeletionTimestamp == nil {
				unwanted = append(unwanted, pod)
			}
		default:
			byNode[node] = pod
		}
	}
	left, err := c.deletePods(ctx, unwanted)
	if err != nil || left {
		return now, err
	}
	created, unavailable := 0, 0
	var old []*corev1.Pod
	for _, n := range nodes {
		pod := byNode[n.Name]
		if pod == nil {
			if created == burst {
				return now, nil
			}
			if err := c.createPod(ctx, daemon(set, o, revision, n.Name)); err != nil {
				return time.Time{}, err
			}
			created++
			unavailable++
			continue
		}
		available, _ := isAvailable(pod, set.Spec.MinReadySeconds, now)
		switch {
		case pod.DeletionTimestamp != nil:
			unavailable++
		case hasRevision(pod, revision):
			if !available {
				unavailable++
			}
		case available:
			old = append(old, pod)
		default: // as well deleted at once
			unavailable++
			old = append([]*corev1.Pod{pod}, old...)
		}
	}
	return time.Time{}, c.replaceDaemons(ctx, set, old, unavailable, len(nodes), now)
}

// replaceDaemons deletes pods of an earlier revision, those that are not available in any case.
func (c *Cluster) replaceDaemons(ctx context.Context, set *appsv1.DaemonSet, old []*corev1.Pod, unavailable, nodes int,
	now time.Time) error {
	if set.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return nil
	}
	most := 1
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		most = max(int(part(rolling.MaxUnavailable, int32(nodes), true)), 1)
	}
	var failed error
	for _, pod := range old {
		if available, _ := isAvailable(pod, set.Spec.MinReadySeconds, now); available {
			if unavailable >= most {
				break
			}
			unavailable++
		}
		failed = errors.Join(failed, c.deletePod(ctx, pod))
	}
	return failed
}

// daemonStatus returns the status of a DaemonSet, and when it changes if no pod does.
func daemonStatus(set *appsv1.DaemonSet, revision *appsv1.ControllerRevision, nodes []*corev1.Node, pods []*corev1.Pod,
	now time.Time) (*appsv1.DaemonSetStatus, time.Time) {
	status := set.Status.DeepCopy()
	*status = appsv1.DaemonSetStatus{
		ObservedGeneration: set.Generation, DesiredNumberScheduled: int32(len(nodes)), CollisionCount: status.CollisionCount,
		Conditions: status.Conditions,
	}
	var due time.Time
	counted := map[string]bool{}
	for _, pod := range pods {
		node := pod.Spec.NodeName
		if pod.DeletionTimestamp != nil || ended(pod) || node == "" || counted[node] {
			continue
		}
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Name == node }) {
			status.NumberMisscheduled++
			continue
		}
		counted[node] = true
		status.CurrentNumberScheduled++
		if isReady(pod) {
			status.NumberReady++
		}
		available, at := isAvailable(pod, set.Spec.MinReadySeconds, now)
		if available {
			status.NumberAvailable++
		}
		due = earlier(due, at)
		if hasRevision(pod, revision) {
			status.UpdatedNumberScheduled++
		}
	}
	status.NumberUnavailable = status.DesiredNumberScheduled - status.NumberAvailable
	return status, due
}
