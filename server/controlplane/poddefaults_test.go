package controlplane_test

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/controlplane"
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

// A pod's resources are completed before its class is set and quotas count it, and stay if a client leaves them out.
func TestResourcesOfPods(t *testing.T) {
	t.Parallel()
	c := connect(t, start(t, controlplane.Options{Controllers: true}).RESTConfig())
	ns := newNamespace(t, c)
	pods := c.typed.CoreV1().Pods(ns)
	limits(t, c, ns, "q", "requests.cpu", "1")
	waitUsed(t, c, ns, "q", "requests.cpu", "0")
	pod := testPod("one")
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", "1", "memory", "1Gi")}
	pod = must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed || pod.Spec.Resources.Requests.Cpu().String() != "1" {
		t.Errorf("the pod has %+v and %s", pod.Spec.Resources, pod.Status.QOSClass)
	}
	waitUsed(t, c, ns, "q", "requests.cpu", "1")
	second := testPod("two")
	second.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("cpu", "100m")}
	_, err := pods.Create(t.Context(), second, metav1.CreateOptions{})
	wantExceeded(t, err, "requested: requests.cpu=100m, used: requests.cpu=1")

	was := pod.Spec.Resources
	pod.Spec.Resources = nil
	if pod = must(pods.Update(t.Context(), pod, metav1.UpdateOptions{}))(t); !equality.Semantic.DeepEqual(
		pod.Spec.Resources, was) {
		t.Errorf("the resources became %+v", pod.Spec.Resources)
	}
}

// Labels that affinities and spreads name by their keys are in the selectors of the pod, with its values.
func TestLabelKeys(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	pod := testPod("p")
	pod.Labels = map[string]string{"app": "web", "hash": "5"}
	term := corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{},
		MatchLabelKeys: []string{"hash", "none"}, MismatchLabelKeys: []string{"app"}}
	nothing := term
	nothing.LabelSelector = nil
	terms := []corev1.PodAffinityTerm{term, nothing}
	weighted := []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}
	pod.Spec.Affinity = &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms,
			PreferredDuringSchedulingIgnoredDuringExecution: weighted},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms,
			PreferredDuringSchedulingIgnoredDuringExecution: weighted},
	}
	pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone",
		WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"hash"}}}
	pod = must(c.typed.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	to, against := pod.Spec.Affinity.PodAffinity, pod.Spec.Affinity.PodAntiAffinity
	for where, got := range map[string]*metav1.LabelSelector{
		"required":          to.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector,
		"preferred":         to.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector,
		"required against":  against.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector,
		"preferred against": against.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector,
	} {
		if text := metav1.FormatLabelSelector(got); text != "app notin (web),hash in (5)" {
			t.Errorf("%s: %s", where, text)
		}
	}
	if got := to.RequiredDuringSchedulingIgnoredDuringExecution[1].LabelSelector; got != nil {
		t.Errorf("a selector of nothing becomes %v", got)
	}
	spread := pod.Spec.TopologySpreadConstraints[0].LabelSelector
	if text := metav1.FormatLabelSelector(spread); text != "hash in (5)" {
		t.Errorf("spread: %s", text)
	}
}
