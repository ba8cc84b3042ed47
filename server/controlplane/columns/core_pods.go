package columns

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/server/readpath"
)

var podView = markEnded(show(podCells,
	nameColumn,
	text("Ready", "How many of the pod's containers are ready, of all."),
	text("Status", "What the pod and its containers are doing, in one word."),
	text("Restarts", "How often the pod's containers were restarted, and when one was last."),
	ageColumn,
	wide(text("IP", described(corev1.PodStatus{}, "podIP"))),
	wide(text("Node", described(corev1.PodSpec{}, "nodeName"))),
	wide(text("Nominated Node", described(corev1.PodStatus{}, "nominatedNodeName"))),
	wide(text("Readiness Gates", described(corev1.PodSpec{}, "readinessGates"))),
))

func podCells(pod *corev1.Pod) []any {
	summary := summarize(pod)
	ip := pod.Status.PodIP
	if ip == "" && len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return []any{
		pod.Name, fmt.Sprintf("%d/%d", summary.ready, summary.containers), summary.status, summary.restarts.cell(), age(pod),
		orElse(ip, none), orElse(pod.Spec.NodeName, none), orElse(pod.Status.NominatedNodeName, none), readinessGates(pod),
	}
}

// readinessGates counts the gates whose conditions are true, of all.
func readinessGates(pod *corev1.Pod) string {
	if len(pod.Spec.ReadinessGates) == 0 {
		return none
	}
	open := 0
	for _, gate := range pod.Spec.ReadinessGates {
		if podConditionIsTrue(pod, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(pod.Spec.ReadinessGates))
}

// podSummary is the combined state of the pod's containers.
type podSummary struct {
	status            string
	ready, containers int
	restarts          restarts
}

// restarts counts the restarts of containers.
type restarts struct {
	count int
	last  time.Time
}

// add counts those of one container.
func (r *restarts) add(container corev1.ContainerStatus) {
	r.count += int(container.RestartCount)
	if ended := container.LastTerminationState.Terminated; ended != nil && r.last.Before(ended.FinishedAt.Time) {
		r.last = ended.FinishedAt.Time
	}
}

// cell returns the number of restarts, with the age of the last one if it is known.
func (r restarts) cell() any {
	if r.count == 0 || r.last.IsZero() {
		return strconv.Itoa(r.count)
	}
	return readpath.Since{Time: r.last, Before: strconv.Itoa(r.count) + " (", After: " ago)"}
}

// summarize returns the state of a pod as kubectl shows it: the phase, unless the pod, then the init
// container that it waits for, then its containers, then its deletion have a more specific reason.
func summarize(pod *corev1.Pod) podSummary {
	sidecars := sidecarsOf(pod)
	s := podSummary{
		status:     orElse(pod.Status.Reason, string(pod.Status.Phase)),
		containers: len(pod.Spec.Containers) + len(sidecars),
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	restartsOfSidecars, initialized := s.addInitContainers(pod, sidecars)
	if initialized || podConditionIsTrue(pod, corev1.PodInitialized) {
		s.restarts = restartsOfSidecars // those of other init containers are history
		s.addContainers(pod)
	}
	if pod.DeletionTimestamp != nil {
		s.status = deletedStatus(pod, s.status)
	}
	return s
}

// sidecarsOf returns the names of the init containers that run alongside the containers
// (KEP-753: their own restart policy is Always).
func sidecarsOf(pod *corev1.Pod) map[string]bool {
	sidecars := map[string]bool{}
	for _, container := range pod.Spec.InitContainers {
		if deref(container.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			sidecars[container.Name] = true
		}
	}
	return sidecars
}

// addInitContainers adds the init containers up to the first incomplete one. If all are complete, the
// pod is initialized.
func (s *podSummary) addInitContainers(pod *corev1.Pod,
	sidecars map[string]bool) (ofSidecars restarts, initialized bool) {
	for i, container := range pod.Status.InitContainerStatuses {
		s.restarts.add(container)
		if sidecars[container.Name] {
			ofSidecars.add(container)
		}
		state := container.State
		switch {
		case state.Terminated != nil && state.Terminated.ExitCode == 0:
			continue
		case sidecars[container.Name] && deref(container.Started, false):
			if container.Ready {
				s.ready++
			}
			continue
		case state.Terminated != nil:
			s.status = "Init:" + terminatedStatus(state.Terminated)
		case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
			s.status = "Init:" + state.Waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return ofSidecars, false
	}
	return ofSidecars, true
}

// addContainers adds the containers. The first one that waits or has terminated determines the status,
// except one that completed.
func (s *podSummary) addContainers(pod *corev1.Pod) {
	running, failed := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		container := pod.Status.ContainerStatuses[i]
		s.restarts.add(container)
		switch state := container.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			s.status = state.Waiting.Reason
		case state.Terminated != nil:
			s.status = terminatedStatus(state.Terminated)
			if state.Terminated.ExitCode != 0 {
				failed = s.status
			}
		case container.Ready && state.Running != nil:
			running = true
			s.ready++
		}
	}
	switch {
	case s.status != "Completed":
	case running && podConditionIsTrue(pod, corev1.PodReady):
		s.status = "Running"
	case failed != "":
		s.status = failed
	case running:
		s.status = "NotReady"
	}
}

// terminatedStatus returns why a container ended: the reason, else the signal, else the exit code.
func terminatedStatus(state *corev1.ContainerStateTerminated) string {
	switch {
	case state.Reason != "":
		return state.Reason
	case state.Signal != 0:
		return fmt.Sprintf("Signal:%d", state.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", state.ExitCode)
	}
}

// deletedStatus returns the status of a pod that is being deleted. One that has ended has its own status.
func deletedStatus(pod *corev1.Pod, status string) string {
	switch {
	case pod.Status.Reason == "NodeLost":
		return "Unknown"
	case podEnded(pod):
		return status
	default:
		return "Terminating"
	}
}

// podEnded reports whether the pod's phase is final.
func podEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podConditionIsTrue(pod *corev1.Pod, conditionType corev1.PodConditionType) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == conditionType {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// markEnded adds the condition Completed to the rows of pods that have ended.
func markEnded(pods view) view {
	row := pods.row
	pods.row = func(object runtime.Object) (metav1.TableRow, bool) {
		marked, ok := row(object)
		if pod, isPod := object.(*corev1.Pod); isPod && podEnded(pod) {
			marked.Conditions = []metav1.TableRowCondition{{
				Type:    metav1.RowCompleted,
				Status:  metav1.ConditionTrue,
				Reason:  string(pod.Status.Phase),
				Message: "The pod has ended: " + string(pod.Status.Phase) + ".",
			}}
		}
		return marked, ok
	}
	return pods
}
