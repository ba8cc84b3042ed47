package builtin

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// remainderAnnotation has, on an autoscaling/v1 object, the fields that only autoscaling/v2 has, so
// that reading and writing v1 loses nothing. kube-apiserver uses several annotations of another form.
const remainderAnnotation = "keepwatch.io/autoscaling-v2"

// remainder is the content of remainderAnnotation.
type remainder struct {
	Metrics        []autoscalingv2.MetricSpec                       `json:"metrics,omitempty"`
	Behavior       *autoscalingv2.HorizontalPodAutoscalerBehavior   `json:"behavior,omitempty"`
	CurrentMetrics []autoscalingv2.MetricStatus                     `json:"currentMetrics,omitempty"`
	Conditions     []autoscalingv2.HorizontalPodAutoscalerCondition `json:"conditions,omitempty"`
}

// defaultCPUUtilization is the target of an autoscaler that names no metric at all, in percent.
const defaultCPUUtilization = 80

// addAutoscalerConversions registers conversions between autoscaling/v1 and autoscaling/v2.
func addAutoscalerConversions(scheme *runtime.Scheme) error {
	for _, err := range []error{
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil),
			func(a, b any, _ conversion.Scope) error {
				return upgrade(a.(*autoscalingv1.HorizontalPodAutoscaler), b.(*autoscalingv2.HorizontalPodAutoscaler))
			}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil),
			func(a, b any, _ conversion.Scope) error {
				return downgrade(a.(*autoscalingv2.HorizontalPodAutoscaler), b.(*autoscalingv1.HorizontalPodAutoscaler))
			}),
		scheme.AddConversionFunc((*autoscalingv1.HorizontalPodAutoscalerList)(nil),
			(*autoscalingv2.HorizontalPodAutoscalerList)(nil),
			func(a, b any, _ conversion.Scope) (err error) {
				in, out := a.(*autoscalingv1.HorizontalPodAutoscalerList), b.(*autoscalingv2.HorizontalPodAutoscalerList)
				out.ListMeta = in.ListMeta
				out.Items, err = convertEach(in.Items, upgrade)
				return err
			}),
		scheme.AddConversionFunc((*autoscalingv2.HorizontalPodAutoscalerList)(nil),
			(*autoscalingv1.HorizontalPodAutoscalerList)(nil),
			func(a, b any, _ conversion.Scope) (err error) {
				in, out := a.(*autoscalingv2.HorizontalPodAutoscalerList), b.(*autoscalingv1.HorizontalPodAutoscalerList)
				out.ListMeta = in.ListMeta
				out.Items, err = convertEach(in.Items, downgrade)
				return err
			}),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// upgrade converts v1 to the stored v2.
func upgrade(in *autoscalingv1.HorizontalPodAutoscaler, out *autoscalingv2.HorizontalPodAutoscaler) error {
	*out = autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	var rest remainder
	if encoded, ok := in.Annotations[remainderAnnotation]; ok {
		if err := json.Unmarshal([]byte(encoded), &rest); err != nil {
			return fmt.Errorf("annotation %s: %w", remainderAnnotation, err)
		}
		out.Annotations = maps.Clone(in.Annotations)
		delete(out.Annotations, remainderAnnotation)
	}
	target := in.Spec.TargetCPUUtilizationPercentage
	if target == nil && len(rest.Metrics) == 0 {
		target = new(int32)
		*target = defaultCPUUtilization
	}
	out.Spec.Metrics = rest.Metrics
	if target != nil {
		out.Spec.Metrics = append(out.Spec.Metrics, cpuTarget(*target))
	}
	out.Spec.Behavior, out.Status.Conditions, out.Status.CurrentMetrics = rest.Behavior, rest.Conditions,
		rest.CurrentMetrics
	if current := in.Status.CurrentCPUUtilizationPercentage; current != nil && len(rest.CurrentMetrics) == 0 {
		out.Status.CurrentMetrics = []autoscalingv2.MetricStatus{cpuStatus(*current)}
	}
	return nil
}

// downgrade converts the stored v2 to v1 and the annotation.
func downgrade(in *autoscalingv2.HorizontalPodAutoscaler, out *autoscalingv1.HorizontalPodAutoscaler) error {
	*out = autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: in.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(in.Spec.ScaleTargetRef),
			MinReplicas:    in.Spec.MinReplicas,
			MaxReplicas:    in.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: in.Status.ObservedGeneration,
			LastScaleTime:      in.Status.LastScaleTime,
			CurrentReplicas:    in.Status.CurrentReplicas,
			DesiredReplicas:    in.Status.DesiredReplicas,
		},
	}
	rest := remainder{Behavior: in.Spec.Behavior, CurrentMetrics: in.Status.CurrentMetrics,
		Conditions: in.Status.Conditions}
	for _, metric := range in.Spec.Metrics {
		if r := metric.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Target.AverageUtilization != nil &&
			out.Spec.TargetCPUUtilizationPercentage == nil {
			out.Spec.TargetCPUUtilizationPercentage = r.Target.AverageUtilization
			continue
		}
		rest.Metrics = append(rest.Metrics, metric)
	}
	for _, metric := range in.Status.CurrentMetrics {
		if r := metric.Resource; r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			out.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
	}
	if rest.empty() {
		return nil
	}
	encoded, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	out.Annotations = maps.Clone(in.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[remainderAnnotation] = string(encoded)
	return nil
}

func (r *remainder) empty() bool {
	return len(r.Metrics) == 0 && r.Behavior == nil && len(r.CurrentMetrics) == 0 && len(r.Conditions) == 0
}

func cpuTarget(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricSource{
			Name:   corev1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
		},
	}
}

func cpuStatus(percent int32) autoscalingv2.MetricStatus {
	return autoscalingv2.MetricStatus{
		Type: autoscalingv2.ResourceMetricSourceType,
		Resource: &autoscalingv2.ResourceMetricStatus{
			Name:    corev1.ResourceCPU,
			Current: autoscalingv2.MetricValueStatus{AverageUtilization: &percent},
		},
	}
}

// defaultBehavior adds the rules that are not given: at most 4 pods or all of them again are added within 15 seconds,
// and all of them may be removed.
func defaultBehavior(b *autoscalingv2.HorizontalPodAutoscalerBehavior) {
	const period = 15
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: period}
	pods := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: period}
	defaultScalingRules(&b.ScaleUp, pods, percent)
	point(&b.ScaleUp.StabilizationWindowSeconds, 0)
	defaultScalingRules(&b.ScaleDown, percent)
}

func defaultScalingRules(rules **autoscalingv2.HPAScalingRules, policies ...autoscalingv2.HPAScalingPolicy) {
	if *rules == nil {
		*rules = &autoscalingv2.HPAScalingRules{}
	}
	point(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	if (*rules).Policies == nil {
		(*rules).Policies = policies
	}
}
