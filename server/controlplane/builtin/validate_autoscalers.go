package builtin

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateAutoscaler checks the bounds, target, metrics and behavior of a HorizontalPodAutoscaler.
func validateAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) (errs field.ErrorList) {
	at, spec := field.NewPath("spec"), &a.Spec
	if least := spec.MinReplicas; least != nil {
		if *least < 0 { // before Kubernetes 1.37: < 1
			errs = append(errs, field.Invalid(at.Child("minReplicas"), *least, "must be greater than or equal to 0"))
		}
		if spec.MaxReplicas < *least {
			errs = append(errs, field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas,
				"must be greater than or equal to `minReplicas`"))
		}
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(at.Child("maxReplicas"), "must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	errs = append(errs, validateScaled(at.Child("scaleTargetRef"), spec.ScaleTargetRef,
		spec.ScaleTargetRef.Kind == "ReplicationController")...)
	for i, metric := range spec.Metrics {
		errs = append(errs, validateMetric(at.Child("metrics").Index(i), &metric)...)
	}
	if spec.MinReplicas != nil && *spec.MinReplicas == 0 && !scalesFromZero(spec.Metrics) {
		errs = append(errs, field.Forbidden(at.Child("metrics"),
			"must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validateScalingRules(at.Child("behavior", "scaleUp"), b.ScaleUp)...)
		errs = append(errs, validateScalingRules(at.Child("behavior", "scaleDown"), b.ScaleDown)...)
	}
	return errs
}

func scalesFromZero(metrics []autoscalingv2.MetricSpec) bool {
	for _, m := range metrics {
		if m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType {
			return true
		}
	}
	return false
}

// validateScaled checks a reference to an object. core permits the core group.
func validateScaled(at *field.Path, ref autoscalingv2.CrossVersionObjectReference, core bool) (errs field.ErrorList) {
	errs = append(requiredSegment(at.Child("kind"), ref.Kind), requiredSegment(at.Child("name"), ref.Name)...)
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err == nil && version.Group == "" && !core {
		err = errors.New("apiVersion must specify API group")
	}
	if err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

// validateMetric checks that a metric has the source of its type and no other one.
func validateMetric(at *field.Path, m *autoscalingv2.MetricSpec) (errs field.ErrorList) {
	if m.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric source type"))
	}
	sources := []struct {
		name  string
		of    autoscalingv2.MetricSourceType
		has   bool
		check func(*field.Path) field.ErrorList
	}{
		{"containerResource", autoscalingv2.ContainerResourceMetricSourceType, m.ContainerResource != nil,
			func(at *field.Path) field.ErrorList {
				return append(containerName(at, m.ContainerResource.Container), validateUse(at, string(m.ContainerResource.Name),
					m.ContainerResource.Target)...)
			}},
		{"external", autoscalingv2.ExternalMetricSourceType, m.External != nil, func(at *field.Path) field.ErrorList {
			return validateExternal(at, m.External)
		}},
		{"object", autoscalingv2.ObjectMetricSourceType, m.Object != nil, func(at *field.Path) field.ErrorList {
			return validateObjectMetric(at, m.Object)
		}},
		{"pods", autoscalingv2.PodsMetricSourceType, m.Pods != nil, func(at *field.Path) field.ErrorList {
			return validatePodsMetric(at, m.Pods)
		}},
		{"resource", autoscalingv2.ResourceMetricSourceType, m.Resource != nil, func(at *field.Path) field.ErrorList {
			return validateUse(at, string(m.Resource.Name), m.Resource.Target)
		}},
	}
	present := 0
	var types []autoscalingv2.MetricSourceType
	for _, s := range sources {
		types = append(types, s.of)
		if s.has {
			present++
		} else if s.of == m.Type {
			errs = append(errs, field.Required(at.Child(s.name), "must populate information for the given metric source"))
		}
	}
	errs = append(errs, oneOf(at.Child("type"), m.Type, types...)...)
	for _, s := range sources {
		switch {
		case !s.has:
		case present == 1:
			errs = append(errs, s.check(at.Child(s.name))...)
		case s.of != m.Type:
			errs = append(errs, field.Forbidden(at.Child(s.name), "must populate the given metric source only"))
		}
	}
	return errs
}

func containerName(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at.Child("container"), "must specify a container")}
	}
	return invalids(at.Child("container"), name, validation.IsDNS1123Label(name))
}

// validateUse checks the target of a resource that containers use.
func validateUse(at *field.Path, name string, target autoscalingv2.MetricTarget) (errs field.ErrorList) {
	if name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
	}
	errs = append(errs, validateMetricTarget(at.Child("target"), &target)...)
	switch {
	case target.AverageUtilization == nil && target.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("target", "averageUtilization"),
			"must set either a target raw value or a target utilization"))
	case target.AverageUtilization != nil && target.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("target", "averageValue"),
			"may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateExternal(at *field.Path, m *autoscalingv2.ExternalMetricSource) (errs field.ErrorList) {
	errs = append(metricName(at, m.Metric.Name), validateMetricTarget(at.Child("target"), &m.Target)...)
	switch {
	case m.Target.Value == nil && m.Target.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("target", "averageValue"),
			"must set either a target value for metric or a per-pod target"))
	case m.Target.Value != nil && m.Target.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("target", "value"),
			"may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validateObjectMetric(at *field.Path, m *autoscalingv2.ObjectMetricSource) (errs field.ErrorList) {
	errs = validateScaled(at.Child("describedObject"), m.DescribedObject, true)
	errs = append(errs, append(metricName(at, m.Metric.Name), validateMetricTarget(at.Child("target"), &m.Target)...)...)
	if m.Target.Value == nil && m.Target.AverageValue == nil {
		errs = append(errs, field.Required(at.Child("target", "averageValue"),
			"must set either a target value or averageValue"))
	}
	return errs
}

func validatePodsMetric(at *field.Path, m *autoscalingv2.PodsMetricSource) (errs field.ErrorList) {
	errs = append(metricName(at, m.Metric.Name), validateMetricTarget(at.Child("target"), &m.Target)...)
	if m.Target.AverageValue == nil {
		errs = append(errs, field.Required(at.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func metricName(at *field.Path, name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at.Child("metric", "name"), "must specify a metric name")}
	}
	return requiredSegment(at.Child("metric", "name"), name)
}

func validateMetricTarget(at *field.Path, t *autoscalingv2.MetricTarget) (errs field.ErrorList) {
	if t.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	}
	if t.Type != autoscalingv2.UtilizationMetricType && t.Type != autoscalingv2.ValueMetricType &&
		t.Type != autoscalingv2.AverageValueMetricType {
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	for name, value := range map[string]*resource.Quantity{"value": t.Value, "averageValue": t.AverageValue} {
		if value != nil && value.Sign() != 1 {
			errs = append(errs, field.Invalid(at.Child(name), value, "must be positive"))
		}
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), t.AverageUtilization, "must be greater than 0"))
	}
	return errs
}

const (
	maxStabilizationSeconds = 3600
	maxPeriodSeconds        = 1800
)

func validateScalingRules(at *field.Path, r *autoscalingv2.HPAScalingRules) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	if window := r.StabilizationWindowSeconds; window != nil && *window < 0 {
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), window,
			"must be greater than or equal to zero"))
	} else if window != nil && *window > maxStabilizationSeconds {
		errs = append(errs, field.Invalid(at.Child("stabilizationWindowSeconds"), window,
			fmt.Sprintf("must be less than or equal to %d", maxStabilizationSeconds)))
	}
	if r.SelectPolicy != nil {
		errs = append(errs, oneOf(at.Child("selectPolicy"), *r.SelectPolicy,
			autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(at.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		here := at.Child("policies").Index(i)
		errs = append(errs, oneOf(here.Child("type"), p.Type, autoscalingv2.PercentScalingPolicy,
			autoscalingv2.PodsScalingPolicy)...)
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(here.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(here.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		} else if p.PeriodSeconds > maxPeriodSeconds {
			errs = append(errs, field.Invalid(here.Child("periodSeconds"), p.PeriodSeconds,
				fmt.Sprintf("must be less than or equal to %d", maxPeriodSeconds)))
		}
	}
	return errs
}
