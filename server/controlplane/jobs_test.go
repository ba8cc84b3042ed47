package controlplane_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The labels and the selector of another Job, in a copy of it, are refused, and not replaced.
func TestJobWithLabelsOfAnother(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	jobs := c.typed.BatchV1().Jobs(newNamespace(t, c))
	job := func(name string) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}}
		j.Spec.Template.Spec = testPod("p").Spec
		j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return j
	}
	first := must(jobs.Create(t.Context(), job("first"), metav1.CreateOptions{}))(t)
	second := job("second")
	second.Spec.Template.Labels, second.Spec.Selector = first.Spec.Template.Labels, first.Spec.Selector
	_, err := jobs.Create(t.Context(), second, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "`selector` not auto-generated") ||
		!strings.Contains(err.Error(), "must be 'second'") {
		t.Errorf("the copy: %v", err)
	}
	manual := job("manual")
	manual.Spec.ManualSelector = new(true)
	if _, err := jobs.Create(t.Context(), manual, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "spec.selector: Required") {
		t.Errorf("without a selector: %v", err)
	}
	manual.Spec.Selector = metav1.SetAsLabelSelector(map[string]string{"a": "b"})
	if _, err := jobs.Create(t.Context(), manual, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("with a selector of other pods: %v", err)
	}
	manual.Spec.Template.Labels = map[string]string{"a": "b"}
	must(jobs.Create(t.Context(), manual, metav1.CreateOptions{}))(t)
}
