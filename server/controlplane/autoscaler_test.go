package controlplane_test

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writing an autoscaler through v1 must not lose fields that only v2 has.
func TestAutoscalerThroughV1(t *testing.T) {
	c := connect(t, shared.RESTConfig())
	ns := newNamespace(t, c)
	ctx := t.Context()
	percent, window, memory := int32(70), int32(60), resource.MustParse("1Gi")
	v2 := must(c.typed.AutoscalingV2().HorizontalPodAutoscalers(ns).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "h"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"},
			MaxReplicas:    5,
			Metrics: []autoscalingv2.MetricSpec{
				{Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory,
						Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &memory}}},
				{Type: autoscalingv2.ResourceMetricSourceType,
					Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceCPU,
						Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent}}},
			},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: &window}},
		},
	}, metav1.CreateOptions{}))(t)

	v1 := must(c.typed.AutoscalingV1().HorizontalPodAutoscalers(ns).Get(ctx, "h", metav1.GetOptions{}))(t)
	if v1.Spec.TargetCPUUtilizationPercentage == nil || *v1.Spec.TargetCPUUtilizationPercentage != percent ||
		v1.Spec.MaxReplicas != 5 {
		t.Fatalf("v1 shows %v", v1.Spec)
	}
	v1.Spec.MaxReplicas = 9
	must(c.typed.AutoscalingV1().HorizontalPodAutoscalers(ns).Update(ctx, v1, metav1.UpdateOptions{}))(t)

	got := must(c.typed.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(ctx, "h", metav1.GetOptions{}))(t)
	want := v2.Spec.DeepCopy()
	want.MaxReplicas = 9
	if !equality.Semantic.DeepEqual(got.Spec, *want) || len(got.Annotations) != 0 {
		t.Errorf("v2 has %+v and annotations %v, want %+v", got.Spec, got.Annotations, *want)
	}
}
