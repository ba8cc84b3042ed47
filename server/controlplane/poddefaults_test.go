package controlplane_test

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sparse is a pod's specification without what kube-apiserver fills in.
const sparse = `{
	"containers": [{
		"name": "c", "image": "example.com/c:1", "ports": [{"containerPort": 80}],
		"env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
		"resources": {"requests": {"cpu": "0.0005"}},
		"livenessProbe": {"grpc": {"port": 1}},
		"lifecycle": {"postStart": {"httpGet": {"port": 80}}, "preStop": {"httpGet": {"port": 80}}}
	}],
	"volumes": [
		{"name": "downward", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}},
		{"name": "projected", "projected": {"sources": [
			{"downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}},
			{"serviceAccountToken": {"path": "token"}}
		]}},
		{"name": "claimed", "ephemeral": {"volumeClaimTemplate": {"spec": {
			"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
		{"name": "image", "image": {"reference": "example.com/i"}}
	]
}`

// What is filled into a pod is filled into every template of pods: a controller that compares them finds no difference.
func TestDefaultsOfPods(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	var spec corev1.PodSpec
	if err := json.Unmarshal([]byte(sparse), &spec); err != nil {
		t.Fatal(err)
	}
	pod := must(c.typed.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: spec}, metav1.CreateOptions{}))(t)
	wantDefaults(t, "a pod", pod.Spec)
	labels := map[string]string{"app": "a"}
	deployment := must(c.typed.AppsV1().Deployments(ns).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
	}, metav1.CreateOptions{}))(t)
	wantDefaults(t, "a template", deployment.Spec.Template.Spec)
}

func wantDefaults(t *testing.T, of string, spec corev1.PodSpec) {
	t.Helper()
	container := spec.Containers[0]
	for _, ref := range []*corev1.ObjectFieldSelector{container.Env[0].ValueFrom.FieldRef,
		spec.Volumes[0].DownwardAPI.Items[0].FieldRef, spec.Volumes[1].Projected.Sources[0].DownwardAPI.Items[0].FieldRef} {
		if ref.APIVersion != "v1" {
			t.Errorf("%s: the version of the field %s is %q", of, ref.FieldPath, ref.APIVersion)
		}
	}
	if cpu := container.Resources.Requests.Cpu().String(); cpu != "1m" {
		t.Errorf("%s: requests %s of CPU", of, cpu)
	}
	if service := container.LivenessProbe.GRPC.Service; service == nil {
		t.Errorf("%s: the probe has no service", of)
	}
	for _, hook := range []*corev1.LifecycleHandler{container.Lifecycle.PostStart, container.Lifecycle.PreStop} {
		if hook.HTTPGet.Path != "/" || hook.HTTPGet.Scheme != corev1.URISchemeHTTP {
			t.Errorf("%s: the hook gets %+v", of, hook.HTTPGet)
		}
	}
	if seconds := spec.Volumes[1].Projected.Sources[1].ServiceAccountToken.ExpirationSeconds; seconds == nil ||
		*seconds != 3600 {
		t.Errorf("%s: the token expires after %v", of, seconds)
	}
	if mode := spec.Volumes[2].Ephemeral.VolumeClaimTemplate.Spec.VolumeMode; mode == nil ||
		*mode != corev1.PersistentVolumeFilesystem {
		t.Errorf("%s: the mode of the volume is %v", of, mode)
	}
	if policy := spec.Volumes[3].Image.PullPolicy; policy != corev1.PullAlways {
		t.Errorf("%s: the image is pulled %q", of, policy)
	}
}

// The ports of a pod in the network of its node are ports of the node.
func TestHostPorts(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	pod := testPod("p")
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 81}}
	pod = must(c.typed.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	if ports := pod.Spec.Containers[0].Ports; ports[0].HostPort != 80 || ports[1].HostPort != 81 {
		t.Errorf("the ports are %+v", ports)
	}
}
