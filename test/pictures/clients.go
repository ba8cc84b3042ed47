package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
)

const (
	nodes       = 5
	deployments = 12
	replicas    = 40
)

// newClient returns a client that names itself userAgent, and reads contentType, or JSON if that is empty.
func newClient(kubeconfig, userAgent, contentType string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.ContentType, config.QPS = userAgent, contentType, -1
	return kubernetes.NewForConfig(config)
}

// deploy creates the workloads, and waits until they are ready.
func deploy(ctx context.Context, kubeconfig string) error {
	client, err := newClient(kubeconfig, "", "")
	if err != nil {
		return err
	}
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%d", i)}}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range deployments {
		if _, err := client.AppsV1().Deployments("default").Create(ctx, deployment(fmt.Sprintf("web-%d", i)),
			metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for ; ; time.Sleep(time.Second) {
		all, err := client.AppsV1().Deployments("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := int32(0)
		for _, d := range all.Items {
			ready += d.Status.ReadyReplicas
		}
		if ready == deployments*replicas {
			return nil
		}
	}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}},
			},
		},
	}
}

// list reads what a dashboard shows, again and again, in both encodings.
func list(ctx context.Context, kubeconfig string) error {
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		client, err := newClient(kubeconfig, "dashboard/1.4", encoding)
		if err != nil {
			return err
		}
		options := metav1.ListOptions{ResourceVersion: "0"}
		for range 20 {
			_, pods := client.CoreV1().Pods("").List(ctx, options)
			_, nodes := client.CoreV1().Nodes().List(ctx, options)
			_, deployments := client.AppsV1().Deployments("").List(ctx, options)
			_, replicaSets := client.AppsV1().ReplicaSets("").List(ctx, options)
			if err := errors.Join(pods, nodes, deployments, replicaSets); err != nil {
				return err
			}
		}
	}
	return nil
}

// inform runs the informers of a controller until ctx is done. It returns when they have synced.
func inform(ctx context.Context, kubeconfig string) error {
	client, err := newClient(kubeconfig, "controller/2.1", "application/vnd.kubernetes.protobuf")
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Apps().V1().Deployments().Informer()
	factory.Apps().V1().ReplicaSets().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return ctx.Err()
}
