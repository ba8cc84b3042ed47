// Package fleet makes the objects of a large cluster, for tests and benchmarks.
package fleet

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pod returns the pod of a number as clusters have it: 8.8 KB of JSON, a third of it managedFields.
func Pod(i int) *corev1.Pod {
	now := metav1.NewTime(time.Unix(1_790_000_000+int64(i), 0))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%03d", i/1000), Name: fmt.Sprintf("web-%05d", i), GenerateName: "web-",
			CreationTimestamp: now,
			UID:               types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)),
			Labels: map[string]string{"app": fmt.Sprintf("web-%d", i%97), "pod-template-hash": fmt.Sprintf("%08x", i%97*7919),
				"tier": "front", "app.kubernetes.io/managed-by": "deployer"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "config/checksum": fmt.Sprintf("%064x", i),
				"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat(
					`{"name":"web","ports":[{"containerPort":8080}]},`, 12)},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%03d", i%500), ServiceAccountName: "default",
			Volumes: []corev1.Volume{
				{Name: "config",
					VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: fmt.Sprintf("10.2.%d.%d", i/250%250,
			i%250)},
	}
	for _, manager := range []string{"kube-controller-manager", "kube-scheduler", "kubelet"} {
		var fields strings.Builder
		for _, name := range []string{"web", "proxy", "logs"} {
			fmt.Fprintf(&fields,
				`"k:{\"name\":\"%s\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"REGION\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:livenessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}}}},`, name)
		}
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
			FieldsType: "FieldsV1",
			FieldsV1:   fieldsV1(`{"f:spec":{"f:containers":{` + fields.String() + `".":{}}}}`),
		})
	}
	for _, name := range []string{"web", "proxy", "logs"} {
		image := "registry.example.com/team/" + name +
			"@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz",
			Port: intstr.FromInt32(8080), Scheme: corev1.URISchemeHTTP}},
			InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Image: image, Args: []string{"--listen=:8080", "--log-level=info", "--config=/etc/web/config.yaml"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
			Env: []corev1.EnvVar{{Name: "REGION", Value: "eu-central-1"}, {Name: "UPSTREAM_URL",
				Value: "http://service.team.svc.cluster.local:8080/api/v1"}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("256Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web", ReadOnly: true},
				{Name: "scratch", MountPath: "/tmp"}},
			LivenessProbe: probe, ReadinessProbe: probe, TerminationMessagePath: corev1.TerminationMessagePathDefault,
			ImagePullPolicy: corev1.PullIfNotPresent,
		})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Image: image, ImageID: image, Ready: true, ContainerID: fmt.Sprintf("containerd://%064x", i),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue,
			LastTransitionTime: now})
	}
	return pod
}

// Shrink makes a pod one of 1.5 KB of JSON: with little of two containers, without managed fields and annotations.
func Shrink(pod *corev1.Pod) {
	pod.Annotations, pod.ManagedFields, pod.Spec.Volumes = nil, nil, nil
	pod.Spec.Containers, pod.Status.ContainerStatuses = pod.Spec.Containers[:2], pod.Status.ContainerStatuses[:2]
	for i, c := range pod.Spec.Containers {
		pod.Spec.Containers[i] = corev1.Container{Name: c.Name, Image: c.Image}
		of := &pod.Status.ContainerStatuses[i]
		*of = corev1.ContainerStatus{Name: c.Name, Ready: true, ContainerID: of.ContainerID}
	}
}

// fieldsV1 returns fields from their JSON. metav1.NewFieldsV1 is not in older versions.
func fieldsV1(text string) *metav1.FieldsV1 {
	f := &metav1.FieldsV1{}
	if err := f.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return f
}
