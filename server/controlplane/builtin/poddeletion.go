package builtin

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// deletion returns the rules of deletions.
func (s strategy) deletion() rest.RESTDeleteStrategy {
	if s.groupResource() == corev1.Resource("pods") {
		return podDeletion{s}
	}
	return s
}

// podDeletion deletes pods in two steps, as kube-apiserver does: a pod on a node gets a deletion timestamp, and the
// kubelet deletes it without a grace period when its containers have ended
// (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination).
type podDeletion struct{ strategy }

// CheckGracefulDelete sets the grace period: the given one, or the pod's. It is zero for a pod that has no node or has
// ended, which no kubelet would delete.
func (podDeletion) CheckGracefulDelete(_ context.Context, obj runtime.Object, options *metav1.DeleteOptions) bool {
	if options == nil {
		return false
	}
	pod := obj.(*corev1.Pod)
	var period int64
	switch given := options.GracePeriodSeconds; {
	case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
	case given != nil:
		period = *given
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		period = 1
	}
	options.GracePeriodSeconds = &period
	return true
}
