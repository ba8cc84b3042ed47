package controlplane_test

import (
	"context"
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
	if _, err := deployments.UpdateStatus(ctx, testDeployment("missing"),
		metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("status of a missing object: %v", err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ns},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1"}}}
	if node = must(c.typed.CoreV1().Nodes().Create(ctx, node,
		metav1.CreateOptions{}))(t); node.Status.NodeInfo.KubeletVersion != "v1" {
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
	negative := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: ns},
		Spec: autoscalingv1.ScaleSpec{Replicas: -1}}
	if _, err := deployments.UpdateScale(ctx, "d", negative, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("scaling to -1: %v", err)
	}
	var patched autoscalingv1.Scale
	err := c.typed.AppsV1().RESTClient().Patch(types.MergePatchType).Namespace(ns).Resource("deployments").Name(
		"d").SubResource("scale").
		Body([]byte(`{"spec":{"replicas":6}}`)).Do(ctx).Into(&patched)
	if err != nil || patched.Spec.Replicas != 6 {
		t.Errorf("patching the scale: %v, %v", patched.Spec, err)
	}
}

func TestDefaultsAndNames(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	if got := must(c.typed.CoreV1().Namespaces().Get(ctx, ns,
		metav1.GetOptions{}))(t); got.Labels[corev1.LabelMetadataName] != ns ||
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
		pod.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		pod.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent {
		t.Errorf("a pod is %v %v", pod.Spec, pod.Status)
	}
	bad := testPod("Not_A_Name")
	if _, err := c.typed.CoreV1().Pods(ns).Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a bad name: %v", err)
	}
	generated := testPod("")
	generated.Name, generated.GenerateName = "", "gen-"
	if got := must(c.typed.CoreV1().Pods(ns).Create(ctx, generated, metav1.CreateOptions{}))(t); len(got.Name) != len(
		"gen-")+5 {
		t.Errorf("the generated name is %q", got.Name)
	}
	changed := pod.DeepCopy()
	changed.UID = "other"
	if _, err := c.typed.CoreV1().Pods(ns).Update(ctx, changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("a changed uid: %v", err)
	}
}

// A new node is not ready, and an update does not make it so again.
func TestNewNodesAreTainted(t *testing.T) {
	nodes := connect(t, shared.RESTConfig()).typed.CoreV1().Nodes()
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoExecute}
	for name, given := range map[string][]corev1.Taint{"new": nil, "tainted": {other}, "not-ready": {notReady}} {
		t.Run(name, func(t *testing.T) {
			node := must(nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.NodeSpec{Taints: given}}, metav1.CreateOptions{}))(t)
			t.Cleanup(func() { _ = nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}) })
			want := slices.DeleteFunc(slices.Clone(given), func(taint corev1.Taint) bool { return taint == notReady })
			if got := node.Spec.Taints; !slices.Equal(got, append(want, notReady)) {
				t.Errorf("the taints are %v", got)
			}
			node.Spec.Taints = nil
			if got := must(nodes.Update(t.Context(), node, metav1.UpdateOptions{}))(t).Spec.Taints; len(got) > 0 {
				t.Errorf("after an update the taints are %v", got)
			}
		})
	}
}

// Claims request one device each by default, and taints of devices have a time.
func TestDeviceDefaults(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	claims := c.typed.ResourceV1().ResourceClaims(newNamespace(t, c))
	claim := must(claims.Create(t.Context(), &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
			{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c",
				Tolerations: []resourcev1.DeviceToleration{{Key: "k"}}}},
			{Name: "all", FirstAvailable: []resourcev1.DeviceSubRequest{{Name: "a", DeviceClassName: "c",
				AllocationMode: resourcev1.DeviceAllocationModeAll}}},
		}}},
	}, metav1.CreateOptions{}))(t)
	one, all := claim.Spec.Devices.Requests[0].Exactly, claim.Spec.Devices.Requests[1].FirstAvailable[0]
	if one.AllocationMode != resourcev1.DeviceAllocationModeExactCount || one.Count != 1 ||
		one.Tolerations[0].Operator != resourcev1.DeviceTolerationOpEqual || all.Count != 0 {
		t.Errorf("the claim is %v", claim.Spec)
	}
	node := "n"
	published := c.typed.ResourceV1().ResourceSlices()
	slice := must(published.Create(t.Context(),
		&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "device-defaults"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: "p", Generation: 1,
				ResourceSliceCount: 1},
			Devices: []resourcev1.Device{{Name: "d",
				Taints: []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}}},
		}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = published.Delete(context.WithoutCancel(t.Context()), slice.Name, metav1.DeleteOptions{}) })
	if slice.Spec.Devices[0].Taints[0].TimeAdded == nil || slice.Generation != 1 {
		t.Errorf("the slice is %v", slice)
	}
	for selector, want := range map[string]int{"spec.nodeName=n,spec.driver=example.com,spec.pool.name=p": 1,
		"spec.nodeName=other": 0} {
		if got := must(published.List(t.Context(), metav1.ListOptions{FieldSelector: selector}))(t).Items; len(got) != want {
			t.Errorf("%s selects %v", selector, got)
		}
	}
}
