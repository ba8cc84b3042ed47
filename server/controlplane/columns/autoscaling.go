package columns

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var autoscalingViews = map[schema.GroupResource]view{
	autoscalingv2.Resource("horizontalpodautoscalers"): show(
		func(autoscaler *autoscalingv2.HorizontalPodAutoscaler) []any {
			spec := autoscaler.Spec
			smallest := unset
			if spec.MinReplicas != nil {
				smallest = fmt.Sprint(*spec.MinReplicas)
			}
			return []any{
				autoscaler.Name, spec.ScaleTargetRef.Kind + "/" + spec.ScaleTargetRef.Name, autoscalerTargets(autoscaler), smallest,
				int64(spec.MaxReplicas), int64(autoscaler.Status.CurrentReplicas), age(autoscaler),
			}
		},
		nameColumn,
		text("Reference", described(autoscalingv2.HorizontalPodAutoscalerSpec{}, "scaleTargetRef")),
		text("Targets", described(autoscalingv2.HorizontalPodAutoscalerSpec{}, "metrics")),
		text("MinPods", described(autoscalingv2.HorizontalPodAutoscalerSpec{}, "minReplicas")),
		text("MaxPods", described(autoscalingv2.HorizontalPodAutoscalerSpec{}, "maxReplicas")),
		text("Replicas", described(autoscalingv2.HorizontalPodAutoscalerStatus{}, "currentReplicas")),
		ageColumn,
	),
	autoscalingv1.Resource("scales"): show(
		func(scale *autoscalingv1.Scale) []any {
			return []any{scale.Name, int64(scale.Spec.Replicas), int64(scale.Status.Replicas), age(scale)}
		},
		nameColumn,
		integer("Desired", described(autoscalingv1.ScaleSpec{}, "replicas")),
		integer("Available", described(autoscalingv1.ScaleStatus{}, "replicas")),
		ageColumn,
	),
}

// autoscalerTargets returns current/target of the first metrics.
func autoscalerTargets(autoscaler *autoscalingv2.HorizontalPodAutoscaler) string {
	var targets []string
	for i, metric := range autoscaler.Spec.Metrics {
		var current autoscalingv2.MetricStatus
		if i < len(autoscaler.Status.CurrentMetrics) {
			current = autoscaler.Status.CurrentMetrics[i]
		}
		targets = append(targets, metricTarget(metric, current))
	}
	return orElse(firstFew(targets, 2, ", "), none)
}

// metricTarget returns current/target of one metric.
func metricTarget(metric autoscalingv2.MetricSpec, status autoscalingv2.MetricStatus) string {
	switch {
	case metric.Pods != nil:
		return reading(metric.Pods.Target, deref(status.Pods, autoscalingv2.PodsMetricStatus{}).Current)
	case metric.Object != nil:
		return sharedReading(metric.Object.Target, deref(status.Object, autoscalingv2.ObjectMetricStatus{}).Current)
	case metric.External != nil:
		return sharedReading(metric.External.Target, deref(status.External, autoscalingv2.ExternalMetricStatus{}).Current)
	case metric.Resource != nil:
		current := deref(status.Resource, autoscalingv2.ResourceMetricStatus{}).Current
		return string(metric.Resource.Name) + ": " + reading(metric.Resource.Target, current)
	case metric.ContainerResource != nil:
		current := deref(status.ContainerResource, autoscalingv2.ContainerResourceMetricStatus{}).Current
		return string(metric.ContainerResource.Name) + ": " + reading(metric.ContainerResource.Target, current)
	default:
		return "<unknown type>"
	}
}

// sharedReading returns the reading of a metric that all pods share; it marks an average.
func sharedReading(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return reading(target, current) + " (avg)"
	}
	return reading(target, current)
}

// reading returns current/target in the unit of the target: an average value, a total or percents.
func reading(target autoscalingv2.MetricTarget, current autoscalingv2.MetricValueStatus) string {
	switch {
	case target.AverageValue != nil:
		return quantity(current.AverageValue) + "/" + target.AverageValue.String()
	case target.Value != nil:
		return quantity(current.Value) + "/" + target.Value.String()
	default:
		return percent(current.AverageUtilization) + "/" + percent(target.AverageUtilization)
	}
}

func quantity(q *resource.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.String()
}

func percent(p *int32) string {
	if p == nil {
		return unknown
	}
	return fmt.Sprintf("%d%%", *p)
}
