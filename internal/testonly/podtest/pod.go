package podtest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Pod returns the pod "ns/name".
func Pod(name string, options ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, o := range options {
		o(p)
	}
	return p
}

// Mark sets the label "mark", which distinguishes a pod's states.
func Mark(mark string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"mark": mark} }
}

// UID sets the UID.
func UID(uid string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.UID = types.UID(uid) } }

// At sets the resource version.
func At(revision int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.ResourceVersion = fmt.Sprint(revision) }
}
