package load

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// perNamespace is how many pods of a fleet share a namespace, and perWrite how
// many one transaction of etcd writes (its limit is 128 operations).
const (
	perNamespace = 1000
	perWrite     = 100
)

// Fleet fills a cluster with n pods. It creates the first one, and its status, through the
// API, so that it has defaults and managed fields as the server makes them. It writes
// copies of it to etcd, which is a hundred times faster; edits change each copy.
func Fleet(ctx context.Context, config *rest.Config, etcd *clientv3.Client, n int, edits ...func(*corev1.Pod)) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for i := 0; i < n; i += perNamespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fleetNamespace(i)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	first, err := board(ctx, client)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for i := 1; i < n; i += perWrite {
		group.Go(func() error { return write(ctx, etcd, first, i, min(i+perWrite, n), edits) })
	}
	return group.Wait()
}

func fleetNamespace(i int) string { return fmt.Sprintf("team-%03d", i/perNamespace) }

// board creates the first pod and reports its status, as a controller and a
// kubelet do.
func board(ctx context.Context, client kubernetes.Interface) (*corev1.Pod, error) {
	pods := client.CoreV1().Pods(fleetNamespace(0))
	pod, err := pods.Create(ctx, Pod(fleetNamespace(0), 0), metav1.CreateOptions{FieldManager: "deployer"})
	if err != nil {
		return nil, err
	}
	running(pod, 0)
	return pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{FieldManager: "kubelet"})
}

// write puts the pods [from, to) under the keys and in the encoding that
// kube-apiserver uses.
func write(ctx context.Context, etcd *clientv3.Client, first *corev1.Pod, from, to int,
	edits []func(*corev1.Pod)) error {
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var puts []clientv3.Op
	for i := from; i < to; i++ {
		pod := first.DeepCopy()
		like := Pod(fleetNamespace(i), i)
		pod.Namespace, pod.Name, pod.Labels, pod.Annotations = like.Namespace, like.Name, like.Labels, like.Annotations
		pod.Spec.NodeName = like.Spec.NodeName
		pod.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		pod.ResourceVersion = ""
		pod.APIVersion, pod.Kind = "v1", "Pod"
		pod.Status = corev1.PodStatus{}
		running(pod, i)
		for _, edit := range edits {
			edit(pod)
		}
		value, err := runtime.Encode(encoder, pod)
		if err != nil {
			return err
		}
		puts = append(puts, clientv3.OpPut("/registry/pods/"+pod.Namespace+"/"+pod.Name, string(value)))
	}
	_, err := etcd.Txn(ctx).Then(puts...).Commit()
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
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled} {
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
