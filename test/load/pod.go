// Package load makes and writes the objects that end-to-end tests and benchmarks
// work on.
package load

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pod is the i-th pod of a fleet as a cluster has them: two containers with
// environment, probes, resources and mounts, and the status a kubelet reports.
// It is about 8 KB of JSON once the server has added its defaults and managed
// fields.
func Pod(namespace string, i int) *corev1.Pod {
	name := fmt.Sprintf("web-%d-%05d", i%97, i)
	labels := map[string]string{
		"app": fmt.Sprintf("web-%d", i%97), "tier": []string{"front", "back", "cache"}[i%3],
		"pod-template-hash": fmt.Sprintf("%08x", i%97*7919), "app.kubernetes.io/managed-by": "deployer",
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: labels,
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "9102",
				"config/checksum": fmt.Sprintf("%064x", i),
			},
		},
		Spec: corev1.PodSpec{
			NodeName:           fmt.Sprintf("node-%03d", i%500),
			ServiceAccountName: "default",
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "web-config"}}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
		},
	}
	for c, role := range []string{"web", "proxy"} {
		pod.Spec.Containers = append(pod.Spec.Containers, container(role, int32(8080+c)))
	}
	return pod
}

func container(role string, port int32) corev1.Container {
	probe := &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: "/healthz", Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}},
		InitialDelaySeconds: 5, PeriodSeconds: 10, TimeoutSeconds: 2, SuccessThreshold: 1, FailureThreshold: 3,
	}
	c := corev1.Container{
		Name: role, Image: "registry.example.com/team/" + role +
			"@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
		Args:  []string{"--listen=:8080", "--log-level=info", "--config=/etc/web/config.yaml"},
		Ports: []corev1.ContainerPort{{Name: role, ContainerPort: port, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("256Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web", ReadOnly: true},
			{Name: "scratch", MountPath: "/tmp"}},
		LivenessProbe: probe, ReadinessProbe: probe.DeepCopy(),
	}
	for _, name := range []string{"POD_NAME", "POD_NAMESPACE", "NODE_NAME"} {
		path := map[string]string{"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace",
			"NODE_NAME": "spec.nodeName"}[name]
		c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}})
	}
	for i := range 1 {
		c.Env = append(c.Env, corev1.EnvVar{
			Name: fmt.Sprintf("UPSTREAM_%d_URL", i), Value: fmt.Sprintf("http://service-%d.team.svc.cluster.local:8080/api/v1",
				i)})
	}
	return c
}
