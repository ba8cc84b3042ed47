package controlplane_test

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestStatusIsApart(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	deployments := c.typed.AppsV1().Deployments(ns)

	d := testDeployment("d")
	d.Status.Replicas = 7
	d = must(deployments.Create(ctx, d, metav1.CreateOptions{}))(t)
	if d.Status.Replicas != 0 || d.Generation != 1 {
		t.Fatalf("a create wrote status %v, generation %d", d.Status, d.Generation)
	}
	d.Status.Replicas, d.Spec.Paused = 7, true
	d = must(deployments.Update(ctx, d, metav1.UpdateOptions{}))(t)
	if d.Status.Replicas != 0 || !d.Spec.Paused || d.Generation != 2 {
		t.Fatalf("an update wrote status %v, paused %v, generation %d", d.Status, d.Spec.Paused, d.Generation)
	}
	d.Status.Replicas, d.Spec.Paused = 3, false
	d = must(deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{}))(t)
	if d.Status.Replicas != 3 || !d.Spec.Paused || d.Generation != 2 {
		t.Fatalf("an update of status wrote status %v, paused %v, generation %d", d.Status, d.Spec.Paused, d.Generation)
	}
	d.Labels = map[string]string{"only": "labels"}
	if d = must(deployments.Update(ctx, d, metav1.UpdateOptions{}))(t); d.Generation != 2 || d.Status.Replicas != 3 {
		t.Errorf("labels changed generation to %d, status to %v", d.Generation, d.Status)
	}
	if _, err := deployments.UpdateStatus(ctx, testDeployment("missing"), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("status of a missing object: %v", err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"}}}
	if node = must(c.typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}))(t); node.Status.NodeInfo.KubeletVersion != "v1" {
		t.Error("a node registers without its status")
	}
}

func TestScale(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	deployments := c.typed.AppsV1().Deployments(ns)
	d := must(deployments.Create(ctx, testDeployment("d"), metav1.CreateOptions{}))(t)
	d.Status.Replicas = 1
	must(deployments.UpdateStatus(ctx, d, metav1.UpdateOptions{}))(t)

	scale := must(deployments.GetScale(ctx, "d", metav1.GetOptions{}))(t)
	if scale.Spec.Replicas != 1 || scale.Status.Replicas != 1 || scale.Status.Selector != "app=d" || scale.UID != d.UID {
		t.Fatalf("the scale is %+v", scale)
	}
	scale.Spec.Replicas = 4
	must(deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}))(t)
	got := must(deployments.Get(ctx, "d", metav1.GetOptions{}))(t)
	if *got.Spec.Replicas != 4 || got.Generation != 2 || got.Status.Replicas != 1 {
		t.Errorf("the scaled deployment has %d replicas, generation %d", *got.Spec.Replicas, got.Generation)
	}
	if _, err := deployments.UpdateScale(ctx, "d", scale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("scaling an old version: %v", err)
	}
	negative := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: ns}, Spec: autoscalingv1.ScaleSpec{Replicas: -1}}
	if _, err := deployments.UpdateScale(ctx, "d", negative, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("scaling to -1: %v", err)
	}
	var patched autoscalingv1.Scale
	err := c.typed.AppsV1().RESTClient().Patch(types.MergePatchType).Namespace(ns).Resource("deployments").Name("d").SubResource("scale").
		Body([]byte(`{"spec":{"replicas":6}}`)).Do(ctx).Into(&patched)
	if err != nil || patched.Spec.Replicas != 6 {
		t.Errorf("patching the scale: %v, %v", patched.Spec, err)
	}
}

func TestDefaultsAndNames(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	if got := must(c.typed.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))(t); got.Labels[corev1.LabelMetadataName] != ns ||
		got.Status.Phase != corev1.NamespaceActive || len(got.Spec.Finalizers) != 1 {
		t.Errorf("a namespace is %v", got)
	}
	secret := must(c.typed.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"a": "b"},
	}, metav1.CreateOptions{}))(t)
	if secret.Type != corev1.SecretTypeOpaque || string(secret.Data["a"]) != "b" || secret.StringData != nil {
		t.Errorf("a secret is %v", secret)
	}
	pod := must(c.typed.CoreV1().Pods(ns).Create(ctx, testPod("p"), metav1.CreateOptions{}))(t)
	if pod.Status.Phase != corev1.PodPending || pod.Status.QOSClass != corev1.PodQOSBestEffort || pod.Generation != 1 ||
		pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("a pod is %v %v", pod.Spec, pod.Status)
	}
	bad := testPod("Not_A_Name")
	if _, err := c.typed.CoreV1().Pods(ns).Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v", err)
	}
	generated := testPod("")
	generated.Name, generated.GenerateName = "", "gen-"
	if got := must(c.typed.CoreV1().Pods(ns).Create(ctx, generated, metav1.CreateOptions{}))(t); len(got.Name) != len("gen-")+5 {
		t.Errorf("the generated name is %q", got.Name)
	}
	changed := pod.DeepCopy()
	changed.UID = "other"
	if _, err := c.typed.CoreV1().Pods(ns).Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a changed uid: %v", err)
	}
}
