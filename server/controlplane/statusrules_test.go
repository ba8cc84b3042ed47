package controlplane_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// /status of pods leaves the owners, and what a client that does not know a field leaves out.
func TestStatusOfPodKeepsWhatTheServerOwns(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	pods := c.typed.CoreV1().Pods(newNamespace(t, c))
	ctx := t.Context()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "missing", UID: "1"}
	pod := testPod("p")
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	pod.Finalizers = []string{"example.com/held"} // the garbage collector deletes it
	pod = must(pods.Create(ctx, pod, metav1.CreateOptions{}))(t)

	claim := corev1.PodResourceClaimStatus{Name: "claim"}
	status := pod.DeepCopy()
	status.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, ObservedGeneration: 1, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{claim},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, ObservedGeneration: 1}},
	}
	status.OwnerReferences, status.DeletionTimestamp = nil, new(metav1.Now())
	status.ResourceVersion = ""
	status = must(pods.UpdateStatus(ctx, status, metav1.UpdateOptions{}))(t)
	if len(status.OwnerReferences) != 1 || status.DeletionTimestamp != nil ||
		status.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("the owners are %v, the class is %q, deleted %v", status.OwnerReferences, status.Status.QOSClass,
			status.DeletionTimestamp)
	}
	status.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	status.ResourceVersion = ""
	status = must(pods.UpdateStatus(ctx, status, metav1.UpdateOptions{}))(t)
	if s := status.Status; s.ObservedGeneration != 1 || len(s.ResourceClaimStatuses) != 1 ||
		s.Conditions[0].ObservedGeneration != 1 {
		t.Errorf("the status is %+v", s)
	}
}

// /status of a Deployment leaves the labels, and that of a ResourceClaim all metadata.
func TestStatusLeavesMetadata(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	d := must(c.typed.AppsV1().Deployments(ns).Create(ctx, testDeployment("d"), metav1.CreateOptions{}))(t)
	d.Labels, d.Annotations = map[string]string{"by": "status"}, map[string]string{"by": "status"}
	d = must(c.typed.AppsV1().Deployments(ns).UpdateStatus(ctx, d, metav1.UpdateOptions{}))(t)
	if d.Labels != nil || d.Annotations == nil {
		t.Errorf("the labels are %v, the annotations %v", d.Labels, d.Annotations)
	}
	claims := c.typed.ResourceV1().ResourceClaims(ns)
	claim := must(claims.Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
		metav1.CreateOptions{}))(t)
	claim.Labels, claim.Finalizers = map[string]string{"by": "status"}, []string{"example.com/held"}
	claim = must(claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}))(t)
	if claim.Labels != nil || claim.Finalizers != nil {
		t.Errorf("the labels are %v, the finalizers %v", claim.Labels, claim.Finalizers)
	}
}

// The server sets when the phase of a volume changed, as long as the client does not.
func TestPhaseTransitionOfVolume(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	volumes := c.typed.CoreV1().PersistentVolumes()
	ctx := t.Context()
	v := must(volumes.Create(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: "v-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v"}},
		}}, metav1.CreateOptions{}))(t)
	update := func(phase corev1.PersistentVolumePhase, at *metav1.Time) *corev1.PersistentVolume {
		t.Helper()
		v.Status = corev1.PersistentVolumeStatus{Phase: phase, LastPhaseTransitionTime: at}
		v = must(volumes.UpdateStatus(ctx, v, metav1.UpdateOptions{}))(t)
		return v
	}
	given := metav1.NewTime(time.Unix(1_000_000_000, 0))
	if v := update(corev1.VolumeAvailable, &given); !v.Status.LastPhaseTransitionTime.Equal(&given) {
		t.Errorf("the time of the client became %v", v.Status.LastPhaseTransitionTime)
	}
	if v := update(corev1.VolumeAvailable, nil); !v.Status.LastPhaseTransitionTime.Equal(&given) {
		t.Errorf("without another phase, the time became %v", v.Status.LastPhaseTransitionTime)
	}
	if v := update(corev1.VolumeBound, nil); v.Status.LastPhaseTransitionTime == nil ||
		v.Status.LastPhaseTransitionTime.Equal(&given) {
		t.Errorf("after another phase, the time is %v", v.Status.LastPhaseTransitionTime)
	}
}

// The address of a pod and the list of its addresses agree, so that a client that sets one of them is found by both.
func TestAddressesOfPod(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	pods := c.typed.CoreV1().Pods(newNamespace(t, c))
	ctx := t.Context()
	pod := must(pods.Create(ctx, testPod("p"), metav1.CreateOptions{}))(t)
	pod.Status.PodIP = "10.1.2.3"
	pod = must(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))(t)
	if ips := pod.Status.PodIPs; len(ips) != 1 || ips[0].IP != "10.1.2.3" {
		t.Errorf("the addresses are %v", ips)
	}
	found := must(pods.List(ctx, metav1.ListOptions{FieldSelector: "status.podIP=10.1.2.3"}))(t)
	if len(found.Items) != 1 {
		t.Errorf("%d pods have the address", len(found.Items))
	}
	pod.Status.PodIP, pod.Status.PodIPs = "", []corev1.PodIP{{IP: "10.1.2.4"}, {IP: "fd00::4"}}
	if pod = must(pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}))(t); pod.Status.PodIP != "10.1.2.4" {
		t.Errorf("the address is %q", pod.Status.PodIP)
	}
}

// A pod with the former name of the field of its service account has that account.
func TestServiceAccountOfPod(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	pod := testPod("p")
	pod.Spec.DeprecatedServiceAccount = "robot"
	pod = must(c.typed.CoreV1().Pods(newNamespace(t, c)).Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	if pod.Spec.ServiceAccountName != "robot" {
		t.Errorf("the account is %q", pod.Spec.ServiceAccountName)
	}
}

// A pod with scheduling gates says so in a condition, and its own resources determine its class.
func TestStatusOfNewPod(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	pods := c.typed.CoreV1().Pods(newNamespace(t, c))
	gated := testPod("gated")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
	gated = must(pods.Create(t.Context(), gated, metav1.CreateOptions{}))(t)
	if conditions := gated.Status.Conditions; len(conditions) != 1 || conditions[0].Type != corev1.PodScheduled ||
		conditions[0].Status != corev1.ConditionFalse || conditions[0].Reason != corev1.PodReasonSchedulingGated ||
		conditions[0].LastTransitionTime.IsZero() {
		t.Errorf("the conditions are %+v", conditions)
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
	}
	for _, test := range []struct {
		name string
		own  corev1.ResourceRequirements
		want corev1.PodQOSClass
	}{
		{"guaranteed", corev1.ResourceRequirements{Requests: list, Limits: list}, corev1.PodQOSGuaranteed},
		{"burstable", corev1.ResourceRequirements{Requests: list}, corev1.PodQOSBurstable},
	} {
		pod := testPod(test.name)
		pod.Spec.Resources = &test.own
		if pod = must(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t); pod.Status.QOSClass != test.want {
			t.Errorf("%s is %s", test.name, pod.Status.QOSClass)
		}
	}
}
