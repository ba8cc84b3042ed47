package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// schedule assigns a pod to the nodes that it may run on in turn. Requests of resources are not compared with what a
// node has.
func (c *Cluster) schedule(ctx context.Context, namespace, name string) (time.Time, error) {
	never := time.Time{}
	pod, err := c.podsOf.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return never, nil
	}
	if err != nil || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || ended(pod) ||
		pod.Spec.SchedulerName != corev1.DefaultSchedulerName || len(pod.Spec.SchedulingGates) > 0 {
		return never, err
	}
	nodes, err := c.nodesOf.List(labels.Everything())
	if err != nil {
		return never, err
	}
	feasible := slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool {
		return !isNodeReady(n) ||
			!mayRun(pod, n)
	})
	if len(feasible) == 0 {
		return never, c.reportUnschedulable(ctx, pod, len(nodes))
	}
	slices.SortFunc(feasible, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	node := feasible[c.scheduled%uint64(len(feasible))]
	err = c.client.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name},
	}, metav1.CreateOptions{})
	if err == nil {
		c.scheduled++
	}
	return never, err
}

// mayRun reports whether a pod may run on a node when it is ready.
func mayRun(pod *corev1.Pod, node *corev1.Node) bool {
	if node.DeletionTimestamp != nil {
		return false
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable,
			Effect: corev1.TaintEffectNoSchedule})
	}
	_, repelled := schedulinghelpers.FindMatchingUntoleratedTaint(klog.Background(), taints, pod.Spec.Tolerations,
		func(t *corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		}, true)
	if repelled {
		return false
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && matches
}

// reportUnschedulable writes that no node fits, unless the pod's status has it.
func (c *Cluster) reportUnschedulable(ctx context.Context, pod *corev1.Pod, nodes int) error {
	message := fmt.Sprintf("0/%d nodes are available.", nodes)
	if reported := conditionOf(&pod.Status, corev1.PodScheduled); reported != nil &&
		reported.Status == corev1.ConditionFalse && reported.Message == message {
		return nil
	}
	changed := pod.DeepCopy()
	setCondition(&changed.Status, corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, c.clock.Now())
	conditionOf(&changed.Status, corev1.PodScheduled).Message = message
	changed, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err == nil {
		c.pods.await(ctx, changed)
	}
	return err
}
