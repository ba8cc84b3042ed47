package load

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Fleet creates n of [Pod], 1,000 to a namespace, through the API as a cluster's
// controllers and kubelets do: so that they have managed fields and a status.
func Fleet(ctx context.Context, config *rest.Config, n int) error {
	config = rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for i := range (n + 999) / 1000 {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleetNamespace(i * 1000)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range 16 {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := board(ctx, client, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func fleetNamespace(i int) string { return fmt.Sprintf("team-%03d", i/1000) }

// board creates the i-th pod and reports its status.
func board(ctx context.Context, client kubernetes.Interface, i int) error {
	pods := client.CoreV1().Pods(fleetNamespace(i))
	pod, err := pods.Create(ctx, Pod(fleetNamespace(i), i), metav1.CreateOptions{FieldManager: "deployer"})
	if err != nil {
		return err
	}
	running(pod, i)
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{FieldManager: "kubelet"})
	return err
}

// running gives a pod the status of one that runs.
func running(pod *corev1.Pod, i int) {
	now := metav1.Now()
	ready := true
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = &now
	pod.Status.HostIP = fmt.Sprintf("10.1.%d.%d", i/250%250, i%250)
	pod.Status.PodIP = fmt.Sprintf("10.2.%d.%d", i/250%250, i%250)
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true, Started: &ready,
			ContainerID: fmt.Sprintf("containerd://%064x", i),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
}
