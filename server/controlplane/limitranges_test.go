package controlplane_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// quantities returns a list of resources, given as names and values.
func quantities(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func podWith(name string, resources corev1.ResourceRequirements) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: resources}}},
	}
}

// A LimitRange gives new pods their defaults, and refuses pods and claims outside of its bounds, from its creation on.
func TestLimitRanges(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	must(c.typed.CoreV1().LimitRanges(ns).Create(t.Context(), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Max: quantities("cpu", "2"), Min: quantities("cpu", "100m"),
				DefaultRequest:       quantities("cpu", "200m", "memory", "1Mi"),
				MaxLimitRequestRatio: quantities("cpu", "10")},
			{Type: corev1.LimitTypePod, Max: quantities("cpu", "3")},
			{Type: corev1.LimitTypePersistentVolumeClaim, Min: quantities("storage", "1Gi"), Max: quantities("storage", "2Gi")},
		}},
	}, metav1.CreateOptions{}))(t)
	pod := must(c.typed.CoreV1().Pods(ns).Create(t.Context(), podWith("plain", corev1.ResourceRequirements{}),
		metav1.CreateOptions{}))(t)
	got := pod.Spec.Containers[0].Resources
	if request, limit := got.Requests.Cpu().String(), got.Limits.Cpu().String(); request != "200m" || limit != "2" ||
		got.Requests.Memory().String() != "1Mi" {
		t.Errorf("the pod has %v", got)
	}
	if want := "LimitRanger plugin set: cpu, memory request for container c; cpu limit for container c"; pod.Annotations["kubernetes.io/limit-ranger"] != want {
		t.Errorf("the pod has %v, want %q", pod.Annotations, want)
	}
	if pod.Status.QOSClass != corev1.PodQOSBurstable {
		t.Errorf("the pod is %s", pod.Status.QOSClass)
	}
	for _, test := range []struct{ request, limit, want string }{
		{"50m", "400m", `pods "bad" is forbidden: minimum cpu usage per Container is 100m, but request is 50m`},
		{"1", "5", "[maximum cpu usage per Container is 2, but limit is 5, maximum cpu usage per Pod is 3, but limit is 5]"},
		{"100m", "2", "cpu max limit to request ratio per Container is 10, but provided ratio is 20.000000"},
	} {
		resources := corev1.ResourceRequirements{Requests: quantities("cpu", test.request), Limits: quantities("cpu",
			test.limit)}
		_, err := c.typed.CoreV1().Pods(ns).Create(t.Context(), podWith("bad", resources), metav1.CreateOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s to %s is answered with %v, want %s", test.request, test.limit, err, test.want)
		}
	}
	for size, want := range map[string]string{
		"500Mi": `persistentvolumeclaims "c" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi`,
		"3Gi":   `persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi`,
		"2Gi":   "",
	} {
		_, err := c.typed.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: quantities("storage", size)},
			},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if want != "" && (err == nil || err.Error() != want) || want == "" && err != nil {
			t.Errorf("a claim of %s is answered with %v, want %q", size, err, want)
		}
	}
}
