package simulation

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// RunFor is the annotation of pods that end, with a duration like "90s": how long their containers run. Pods with
	// restartPolicy Always, and those of ReplicaSets, StatefulSets and DaemonSets, do not end. Pods of Jobs without it end
	// at once, other pods not.
	RunFor = "simulation.keepwatch.io/run-for"
	// ExitCode is the annotation with the exit code of a pod's containers. A pod fails unless it is "0", the default.
	ExitCode = "simulation.keepwatch.io/exit-code"
)

// strandedAfter is how old pods are at least that are deleted because their node does not exist.
const strandedAfter = 40 * time.Second

// live writes what a kubelet reports about a pod.
func (c *Cluster) live(ctx context.Context, namespace, name string) (time.Time, error) {
	pod, err := c.podsOf.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) || err == nil && (pod.Spec.NodeName == "" || pod.DeletionTimestamp == nil && ended(pod)) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	node, err := c.nodesOf.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return c.strand(ctx, pod)
	}
	if err != nil || !isNodeReady(node) || isKWOKs(node) {
		return time.Time{}, err
	}
	if pod.DeletionTimestamp != nil {
		return time.Time{}, c.terminate(ctx, pod)
	}
	status, due := c.life(pod, node, c.clock.Now())
	if equality.Semantic.DeepEqual(status, &pod.Status) {
		return due, nil
	}
	changed := pod.DeepCopy()
	changed.Status = *status
	changed, err = c.client.CoreV1().Pods(namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err == nil {
		c.pods.await(ctx, changed)
	}
	return due, err
}

// strand deletes a pod whose node is gone.
func (c *Cluster) strand(ctx context.Context, pod *corev1.Pod) (time.Time, error) {
	if due := pod.CreationTimestamp.Add(strandedAfter); due.After(c.clock.Now()) {
		return due, nil
	}
	if _, err := c.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return time.Time{}, err // a change of the node enqueues its pods
	}
	return time.Time{}, c.terminate(ctx, pod)
}

// terminate is the last step of a pod's deletion: its containers have ended. A pod with finalizers stays until they are
// removed.
func (c *Cluster) terminate(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil && (pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds == 0) {
		return nil
	}
	return c.deletePodAfter(ctx, pod, new(int64))
}

// life returns the status of a pod at a time, and when it changes next.
func (c *Cluster) life(pod *corev1.Pod, node *corev1.Node, now time.Time) (*corev1.PodStatus, time.Time) {
	status := pod.Status.DeepCopy()
	if status.Phase != corev1.PodRunning {
		c.start(pod, node, status, now)
	}
	var due time.Time
	if waiting := conditionOf(status, corev1.ContainersReady); waiting != nil && waiting.Status == corev1.ConditionFalse &&
		waiting.Reason == notReady {
		if at := readyAt(pod, status, now); at.After(now) && !c.clock.skipsDelays() {
			due = at
		} else {
			setContainersReady(status, now)
		}
	}
	setReady(pod, status, now)
	if pod.Status.Phase != corev1.PodRunning {
		return status, now // a pod runs before it ends
	}
	if at, ends := endsAt(pod, status); ends {
		if !at.After(now) {
			end(pod, status, now)
			return status, time.Time{}
		}
		due = earlier(due, at)
	}
	return status, due
}

// notReady is the reason of the conditions that a kubelet changes when containers are ready.
const notReady = "ContainersNotReady"

// start sets the status of a pod whose containers start.
func (c *Cluster) start(pod *corev1.Pod, node *corev1.Node, status *corev1.PodStatus, now time.Time) {
	at := metav1.NewTime(now)
	status.Phase, status.StartTime, status.ObservedGeneration = corev1.PodRunning, &at, pod.Generation
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			status.HostIP, status.HostIPs = address.Address, []corev1.HostIP{{IP: address.Address}}
			break
		}
	}
	switch {
	case pod.Spec.HostNetwork:
		status.PodIP = status.HostIP
	case status.PodIP == "":
		status.PodIP = c.addresses.next()
	}
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	for i, container := range pod.Spec.InitContainers {
		s := containerStatus(pod, "init", i, container)
		if container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
		} else {
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at,
				ContainerID: s.ContainerID}
			s.Started = new(bool)
		}
		s.Ready = true
		status.InitContainerStatuses = append(status.InitContainerStatuses, s)
	}
	for i, container := range pod.Spec.Containers {
		s := containerStatus(pod, "main", i, container)
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
		status.ContainerStatuses = append(status.ContainerStatuses, s)
	}
	setCondition(status, corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", now)
	setCondition(status, corev1.PodInitialized, corev1.ConditionTrue, "", now)
	setCondition(status, corev1.ContainersReady, corev1.ConditionFalse, notReady, now)
	setCondition(status, corev1.PodReady, corev1.ConditionFalse, notReady, now)
	setCondition(status, corev1.PodScheduled, corev1.ConditionTrue, "", now)
}

func containerStatus(pod *corev1.Pod, part string, i int, container corev1.Container) corev1.ContainerStatus {
	started := true
	return corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, Started: &started,
		ContainerID: "simulation://" + string(pod.UID) + "/" + part + "/" + strconv.Itoa(i),
	}
}

// readyAt returns when the containers of a pod are ready: after the longest initial delay of a readiness probe.
func readyAt(pod *corev1.Pod, status *corev1.PodStatus, now time.Time) time.Time {
	delay := int32(0)
	for _, container := range pod.Spec.Containers {
		if probe := container.ReadinessProbe; probe != nil {
			delay = max(delay, probe.InitialDelaySeconds)
		}
	}
	if status.StartTime == nil {
		return now
	}
	return status.StartTime.Add(time.Duration(delay) * time.Second)
}

func setContainersReady(status *corev1.PodStatus, now time.Time) {
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].Ready = true
	}
	setCondition(status, corev1.ContainersReady, corev1.ConditionTrue, "", now)
}

// setReady makes a pod ready whose containers are ready and whose readiness gates are passed, unless somebody else has
// written that it is not.
func setReady(pod *corev1.Pod, status *corev1.PodStatus, now time.Time) {
	containers, ready := conditionOf(status, corev1.ContainersReady), conditionOf(status, corev1.PodReady)
	if containers == nil || containers.Status != corev1.ConditionTrue || ready == nil ||
		ready.Status == corev1.ConditionTrue || ready.Reason != notReady && ready.Reason != gatesNotReady {
		return
	}
	open := !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		passed := conditionOf(status, gate.ConditionType)
		return passed == nil || passed.Status != corev1.ConditionTrue
	})
	if open {
		setCondition(status, corev1.PodReady, corev1.ConditionTrue, "", now)
	} else {
		setCondition(status, corev1.PodReady, corev1.ConditionFalse, gatesNotReady, now)
	}
}

const gatesNotReady = "ReadinessGatesNotReady"

// setCondition sets a condition. The time of the transition is that of the last change of the status.
func setCondition(status *corev1.PodStatus, kind corev1.PodConditionType, value corev1.ConditionStatus, reason string,
	now time.Time) {
	condition := conditionOf(status, kind)
	if condition == nil {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind})
		condition = &status.Conditions[len(status.Conditions)-1]
	}
	if condition.Status != value {
		condition.LastTransitionTime = metav1.NewTime(now)
	}
	condition.Status, condition.Reason, condition.Message = value, reason, ""
}

// endsAt returns when the containers of a pod end, if they do.
func endsAt(pod *corev1.Pod, status *corev1.PodStatus) (time.Time, bool) {
	if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways || status.StartTime == nil {
		return time.Time{}, false
	}
	length, given := pod.Annotations[RunFor]
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner != nil && owner.APIVersion == replicaSetKind.GroupVersion().String(): // it would be replaced for ever
		return time.Time{}, false
	case !given && (owner == nil || owner.Kind != jobKind.Kind):
		return time.Time{}, false
	}
	d, _ := time.ParseDuration(length) // an invalid one is zero
	return status.StartTime.Add(d), true
}

// end sets the status of a pod whose containers have ended.
func end(pod *corev1.Pod, status *corev1.PodStatus, now time.Time) {
	code, _ := strconv.ParseInt(pod.Annotations[ExitCode], 10, 32) // of an invalid one, zero
	reason, podReason := "Completed", "PodCompleted"
	status.Phase = corev1.PodSucceeded
	if code != 0 {
		reason, podReason = "Error", "PodFailed"
		status.Phase = corev1.PodFailed
	}
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		ended := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: reason, FinishedAt: metav1.NewTime(now),
			ContainerID: s.ContainerID}
		if s.State.Running != nil {
			ended.StartedAt = s.State.Running.StartedAt
		}
		s.State = corev1.ContainerState{Terminated: ended}
		s.Ready, s.Started = false, new(bool)
	}
	setCondition(status, corev1.ContainersReady, corev1.ConditionFalse, podReason, now)
	setCondition(status, corev1.PodReady, corev1.ConditionFalse, podReason, now)
}

// addresses gives each pod an address. Nothing answers there.
type addresses struct{ last netip.Addr }

// firstAddress is the one before the first.
var firstAddress = netip.AddrFrom4([4]byte{10, 244, 0, 0})

// use continues after the addresses of pods.
func (a *addresses) use(pods []any) {
	a.last = firstAddress
	for _, pod := range pods {
		used, err := netip.ParseAddr(pod.(*corev1.Pod).Status.PodIP)
		if err == nil && used.Is4() && used.As4()[0] == firstAddress.As4()[0] && a.last.Less(used) {
			a.last = used
		}
	}
}

func (a *addresses) next() string {
	a.last = a.last.Next()
	return a.last.String()
}
