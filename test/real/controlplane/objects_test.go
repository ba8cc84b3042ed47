package controlplane

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// appLabel has the name of an app on all its objects.
const appLabel = "app"

func (a app) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: a.namespace, Name: a.name, Labels: a.labels()}
}

func (a app) labels() map[string]string { return map[string]string{appLabel: a.name} }

func (a app) deployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: a.meta(), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(a.replicas)),
		Selector: &metav1.LabelSelector{MatchLabels: a.labels()},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: a.labels()},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: a.image(false),
				Env:   []corev1.EnvVar{{Name: "APP", Value: a.name}},
				Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(
					"10m")}},
			}}},
		},
	}}
}

func (a app) service() *corev1.Service {
	return &corev1.Service{ObjectMeta: a.meta(), Spec: corev1.ServiceSpec{
		Selector: a.labels(), Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
	}}
}

func (a app) budget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: a.meta(), Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: a.labels()}, MaxUnavailable: ptr.To(intstr.FromString("50%")),
	}}
}

// node is a node as a kubelet registers it.
func node(i int) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i),
			corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}
